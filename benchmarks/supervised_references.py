"""Ten supervised topic posteriors with reference draws, in posteriordb's form, that can be shipped.

The corpora are simulated (supervised_data.py): 16 or 20 documents of three to six words, each with a response. The first
method is the package's gibbs on the story. The second shares no code with it: documents are so short that all assignments of
their topics can be summed, which supervised_densities.py writes down by hand in JAX, and NumPyro's NUTS draws what is left.
The same sum is written in Stan's language (supervised_stan.py). Quantities do not change when topics are renumbered. A
posterior is called a reference where both methods agree within four standard errors of their difference and posteriordb's
criteria hold: 10,000 draws, at least 4 chains, R-hat below 1.01, lag-1 autocorrelation within 0.05.

    python benchmarks/supervised_references.py --into DRAWS            # make them, print how methods compare
    python benchmarks/supervised_references.py --into DRAWS --write    # and write benchmarks/supervised_references/

DRAWS keeps draws, so that what was run is not run again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from label_invariants import summary
from reference_files import apart, table, together, write
from reference_runs import Run
from supervised_data import DESIGNS, FILES, arguments_of, corpus_of, simulate
from supervised_densities import by_nuts, invariants, parameters
from supervised_stan import program

from topiczoo import inference

SITES = {"phi": "beta", "slope": "slope_x"}  # parameters that a story calls otherwise
GIBBS = {"engine": "gibbs", "seed": 26, "chains": 10, "draws": 10_000, "thinning": 20, "num_warmup": 1_000}
THINNING = {  # where 20 does not do, or fewer do
    "slda_normal": 50, "slda_learned_alpha": 120, "slda_glm_poisson": 25, "slda_glm_logit": 30, "slda_glm_student_t": 120,
    "sstm_normal": 15, "sstm_probit": 40,
}  # fmt: skip
NUTS = {"seed": 26, "chains": 8, "draws": 6_000, "thinning": 1, "num_warmup": 500}
LONGER = "slda_normal", "slda_glm_ordered"  # where it was run for longer


def settings_of(name: str) -> dict[str, dict[str, Any]]:
    nuts = NUTS | ({"draws": 12_000, "num_warmup": 800} if name in LONGER else {})
    return {"gibbs": GIBBS | {"thinning": THINNING.get(name, GIBBS["thinning"])}, "nuts": nuts}


def by_gibbs(
    name: str, data: dict[str, Any], *, engine: str, seed: int, chains: int, draws: int, thinning: int, num_warmup: int
) -> Run:
    """Draws of a posterior's quantities by one of the package's engines that make chains."""
    design = DESIGNS[name]
    corpus, y = corpus_of(design, data)
    sites = {parameter: SITES.get(parameter, parameter) for parameter in parameters(design)}
    settings = {"seed": seed, "num_chains": chains, "num_warmup": num_warmup, "thinning": thinning}
    settings |= {"num_samples": draws // chains * thinning, "progress_bar": False, **arguments_of(design)}
    if engine == "gibbs":
        settings["keep"] = list(sites.values())
    fit = getattr(inference, engine)(design.story, corpus, y, **settings)
    values = {parameter: fit.draws[site] for parameter, site in sites.items()}
    return Run(invariants(design, data, values)[1], {})


def by_summation(name: str, data: dict[str, Any], **settings: Any) -> Run:
    """Draws of the same by NUTS on the density in which all assignments of topics are summed."""
    found = by_nuts(DESIGNS[name], data, **settings)
    return Run(invariants(DESIGNS[name], data, found)[1], {"diverging": found["diverging"]})


METHODS = {"gibbs": by_gibbs, "nuts": by_summation}


def kept(into: Path | None, name: str, method: str, data: dict[str, Any], settings: dict[str, Any]) -> Run:
    """A run as a file has it, if it was made with the same settings of the same data; else made, timed and kept."""
    path = into and into / f"{name}.{method}.npz"
    digest = hashlib.sha256(json.dumps(data).encode()).hexdigest()
    if path and path.exists():
        with np.load(path) as file:
            run = Run(file["draws"], json.loads(str(file["told"])))
        if (run.told["settings"], run.told["data_sha256"]) == (settings, digest):
            return run
    began = time.process_time()
    run = METHODS[method](name, data, **settings)
    seconds = round(time.process_time() - began)
    run.told.update(method=f"supervised_densities.{METHODS[method].__name__}", settings=settings, cpu_seconds=seconds)
    run.told["data_sha256"] = digest
    if path:
        into.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, draws=run.draws, told=json.dumps(run.told))
    return run


def names_of(name: str, data: dict[str, Any]) -> list[str]:
    """Names of a posterior's quantities."""
    design = DESIGNS[name]
    ones = {parameter: np.ones((1, 1, *shape)) for parameter, (shape, _) in parameters(design).items()}
    return invariants(design, data, ones)[0]


def files_of(name: str, data: dict[str, Any], first: Run, second: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """A posterior's summary and its information, in posteriordb's form."""
    runs = [(run, summary(run.draws)) for run in (first, second)]
    story = {"name": DESIGNS[name].story, "arguments": arguments_of(DESIGNS[name])}
    counted = "as the Stan program generates them; documents, terms and classes from 1"
    return together(name, names_of(name, data), *runs, counted, story=story)


def make(name: str, into: Path | None, writes: bool) -> None:
    """Run both methods, print how they compare, and write the files."""
    data = simulate(DESIGNS[name])
    first, second = (kept(into, name, method, data, settings) for method, settings in settings_of(name).items())
    numbers, info = files_of(name, data, first, second)
    one, other = summary(first.draws), summary(second.draws)
    print(f"\n## {name}: {'a reference' if info['is_reference'] else 'NOT A REFERENCE'}\n")
    print(table(numbers["names"], one, {"every assignment summed": other}, "gibbs"))
    for found, run in ((one, first), (other, second)):
        print(
            f"{run.draws.shape[0]} chains, {np.prod(run.draws.shape[:2])} draws: R-hat at most {max(found['r_hat']):.4f}, "
            f"lag 1 at most {np.abs(found['lag_1']).max():.3f}, {run.told['cpu_seconds']} CPU seconds"
        )
    print(f"largest difference {np.abs(apart(one, other)).max():.2f} MCSE of {len(one['mean'])}")
    print(json.dumps(info["checks_made"]), flush=True)
    if writes:
        write(FILES, name, {"data.json": data, "json": numbers, "info.json": info})
        (FILES / f"{name}.stan").write_text(program(DESIGNS[name]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posteriors", nargs="+", default=list(DESIGNS), choices=list(DESIGNS))
    parser.add_argument("--into", type=Path, help="a folder for draws; what is there is not run again")
    parser.add_argument("--write", action="store_true", help="write benchmarks/supervised_references/")
    options = parser.parse_args()
    os.environ["TOPICZOO_NATIVE"] = "off"  # the same draws whether or not a sweep has been compiled on this machine
    for name in options.posteriors:
        make(name, options.into, options.write)


if __name__ == "__main__":
    main()
