"""Files of reference posteriors in posteriordb's form: a summary by one method, how it was made, a second method beside it.

A posterior is called a reference where both methods agree within four standard errors of their difference and posteriordb's
criteria hold: 10,000 draws, at least 4 chains, R-hat below 1.01, lag-1 autocorrelation within 0.05.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
from reference_runs import Run

MOST_APART = 4.0  # standard errors of a difference
PACKAGES = "topiczoo", "numpy", "scipy", "jax", "numpyro", "arviz-stats"
STATISTICS = "mean", "mcse_mean", "sd", "mcse_sd"

Summary = dict[str, list[float]]  # of a run's quantities, by the names of statistics


def rounded(values: list[float], digits: int = 9) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]


def apart(first: Summary, second: Summary) -> np.ndarray:
    """Differences of means in their standard errors."""
    errors = np.hypot(first["mcse_mean"], second["mcse_mean"])
    return (np.array(second["mean"]) - first["mean"]) / errors


def checks(run: Run, found: Summary, differences: np.ndarray) -> dict[str, bool]:
    """posteriordb's criteria, and that the second method agrees."""
    return {
        "ndraws_is_gte_10k": bool(run.draws.shape[0] * run.draws.shape[1] >= 10_000),
        "nchains_is_gte_4": bool(run.draws.shape[0] >= 4),
        "r_hat_below_1_01": bool(max(found["r_hat"]) < 1.01),
        "lag_1_autocorrelation_within_0_05": bool(np.abs(found["lag_1"]).max() < 0.05),
        "methods_agree_within_4_mcse": bool(np.abs(differences).max() < MOST_APART),
    }


def told_of(run: Run) -> dict[str, Any]:
    """What a method says of itself, in posteriordb's form."""
    rest = {name: value for name, value in run.told.items() if name not in ("method", "settings", "exact_means")}
    engine = run.told["settings"].get("engine")
    method = f"topiczoo.inference.{engine}" if engine else f"benchmarks/{run.told['method']}"
    return {"method": method, "method_arguments": run.told["settings"], "told": rest}


def diagnostics_of(names: list[str], run: Run, found: Summary) -> dict[str, Any]:
    sizes = {name: rounded(found[name], 5) for name in found if name.startswith("effective")}
    return {
        "diagnostic_information": {"names": names}, "ndraws": int(np.prod(run.draws.shape[:2])),
        "nchains": len(run.draws), **sizes, "r_hat": rounded(found["r_hat"], 6),
        "lag_1_autocorrelation": rounded(found["lag_1"], 3),
    }  # fmt: skip


def together(
    name: str, names: list[str], first: tuple[Run, Summary], second: tuple[Run, Summary], counted: str, **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A posterior's summary by its first method, and what is known of both; `more` stands beside the name."""
    (run, one), (other_run, other) = first, second
    differences = apart(one, other)
    made = checks(run, one, differences)
    reference = all(made.values())
    told = "A reference." if reference else "NOT A REFERENCE: checks_made says what was missed. Do not test against it."
    info = {
        "name": name, "is_reference": reference, **more, "inference": told_of(run),
        "diagnostics": diagnostics_of(names, run, one), "checks_made": made,
        "second_method": {
            "inference": told_of(other_run), "diagnostics": diagnostics_of(names, other_run, other),
            "mean": rounded(other["mean"]), "mcse_mean": rounded(other["mcse_mean"]),
            "difference_in_mcse": rounded(differences.tolist(), 3),
        },
        "comments": f"Means, errors and standard deviations of label-invariant quantities; {counted}. {told}",
        "added_by": "topiczoo", "added_date": str(datetime.date.today()),
        "versions": {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in PACKAGES}},
    }  # fmt: skip
    return {"names": names, **{statistic: rounded(one[statistic]) for statistic in STATISTICS}}, info


def write(folder: Path, name: str, contents: dict[str, Any]) -> None:
    """Files of a posterior by how their names end."""
    folder.mkdir(exist_ok=True)
    for end, content in contents.items():
        (folder / f"{name}.{end}").write_text(json.dumps(content) + "\n")


def table(names: list[str], one: Summary, others: dict[str, Summary], first: str) -> str:
    """Quantities by method, with differences in standard errors."""
    heads = [f"| {first}, MCSE | sd |", *(f" {name}, MCSE | apart |" for name in others)]
    lines = ["| quantity " + "".join(heads), "|---|---|---|" + "---|---|" * len(others)]
    far = {name: apart(one, other) for name, other in others.items()}
    for i, name in enumerate(names):
        cells = [f"{one['mean'][i]:.6g} ± {one['mcse_mean'][i]:.2g} | {one['sd'][i]:.3g}"]
        cells += [f"{o['mean'][i]:.6g} ± {o['mcse_mean'][i]:.2g} | {far[m][i]:+.2f}" for m, o in others.items()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
