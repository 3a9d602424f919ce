"""A diagnosis in plain words: what to rely on first, then what holds, what does not, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from topiczoo.inference.posterior.posterior import serving

from .alignment import AlignedFit
from .reliance import CARE, NOT, RELY, UNKNOWN, those
from .variational import ONE_OPTIMUM
from .weighed import more_chains

MOST_TIMES = 20  # as many draws: beyond it more of them are no advice


def verdict(fit: AlignedFit, checks: pd.DataFrame, reliance: pd.DataFrame, limits: Mapping[str, float]) -> str:
    """A first sentence, then a line each for what holds, what needs care, what does not hold, and what to do."""
    lines = [first_sentence(reliance)]
    for grade, start in ((RELY, "Holds"), (CARE, "With care"), (NOT, "Does not hold"), (UNKNOWN, "Cannot be known")):
        part = reliance[reliance["grade"] == grade]
        if len(part):
            # one reason for several is said once
            said = part.groupby("why", sort=False).apply(lambda rows: _and(rows.index), include_groups=False)
            lines.append(f"{start}: " + "; ".join(f"{what} ({why})" for why, what in said.items()) + ".")
    if fit.engine in ("gibbs", "nuts") and fit.has_topics and fit.alignment.switching >= 0.005:
        lines.append(f"Labels switched within chains in {fit.alignment.switching:.0%} of draws, which is harmless.")
    told = advice(fit, checks, limits)
    if told:
        lines.append("What to do: " + " ".join(told))
    return "\n".join(lines)


def first_sentence(reliance: pd.DataFrame) -> str:
    """What to rely on, whatever the engine."""
    of = {grade: list(reliance.index[reliance["grade"] == grade]) for grade in (RELY, CARE, NOT, UNKNOWN)}
    if len(of[RELY]) == len(reliance):
        return "Rely on this posterior: nothing speaks against it."
    if len(of[NOT]) == len(reliance):
        return "Do not rely on this posterior."
    if of[RELY] == ["predictions"] and of[NOT] and not of[CARE] and not of[UNKNOWN]:
        return f"Rely on predictions only, not on {_and(of[NOT])}."
    starts = {
        RELY: "rely on {}",
        CARE: "take care with {}",
        NOT: "do not rely on {}",
        UNKNOWN: "of {} nothing can be known yet",
    }
    said = "; ".join(starts[grade].format(_and(parts)) for grade, parts in of.items() if parts) + "."
    return said[0].upper() + said[1:]


def _and(words: Sequence[str]) -> str:
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def advice(fit: AlignedFit, checks: pd.DataFrame, limits: Mapping[str, float]) -> list[str]:
    """What would help, most telling first; nothing where every check passed."""
    if fit.engine not in ("gibbs", "nuts"):
        return _of_approximations(fit, checks)
    told: list[str] = []
    fails = {name for name in checks.index if checks.loc[name, "passes"] is False}
    num_chains = len(fit.alignment.permutations)
    drawn = next(iter({**fit.draws, **fit.statistics}.values())).shape[1] * int(fit.info.get("thinning") or 1)
    if "ran to its end" in fails:
        told.append("Run it to its end.")
    if serving(fit.info):
        return told + more_chains(fit, num_chains) + _about_predictions(checks, fails, num_chains)
    if num_chains == 1:
        told.append("Give num_chains=2 or more: only other chains can tell what this one has missed.")
    if "topics move" in fails:
        told.append(
            "The response holds topics fast: standardise y, give its noise a prior that allows more of it, or try vem."
        )
    if "no divergences" in fails:
        more = "a higher target_accept_prob, " if fit.engine == "nuts" else ""
        told.append(f"Against divergences give {more}a longer num_warmup or tighter priors.")
    other_modes = "chains found the same topics" in fails
    if other_modes:
        shared = len(fit.alignment.topics) - len(fit.alignment.unmatched)
        read = "alignment.topics says which topics all chains have; read the others" if shared else "read them"
        told.append(
            "More draws will not bring topics together once chains sit in different modes: "
            f"{read} as one chain's account among several, or try another number of topics."
        )
    told += _about_predictions(checks, fails, num_chains)
    if _still_rising(fit):
        warmup = _round(3 * int(fit.info.get("num_warmup") or drawn))
        told.append(f"The log joint density still rises in every chain: give num_warmup={warmup}.")
    return told + _longer(fit, checks, limits, drawn, other_modes)


def _still_rising(fit: AlignedFit) -> bool:
    """Whether every chain ends clearly above where it began: it was not warm."""
    draws = fit.statistics.get("lp")
    if draws is None or draws.shape[1] < 9:
        return False
    thirds = np.array_split(draws, 3, axis=1)
    return bool((thirds[2].mean(1) - thirds[0].mean(1) > thirds[2].std(1)).all())


def _about_predictions(checks: pd.DataFrame, fails: set[str], num_chains: int) -> list[str]:
    told = []
    if "chains score alike" in fails:
        told.append(
            "A chain that predicts worse is in a poorer mode: try a longer num_warmup, another seed or more chains."
        )
    elif "chains predict alike" in fails:
        row = checks.loc["chains predict alike"]
        wanted = int(np.ceil(num_chains * (row["value"] / row["threshold"]) ** 2))
        told.append(f"Predictions averaged over more chains move less: give num_chains={wanted}.")
    return told


def _longer(
    fit: AlignedFit, checks: pd.DataFrame, limits: Mapping[str, float], drawn: int, other_modes: bool
) -> list[str]:
    """How many draws are enough, by the effective ones found."""
    few = [
        name
        for name in checks.index
        if checks.loc[name, "passes"] is None and "draws a chain" in checks.loc[name, "meaning"]
    ]
    told = []
    if few:
        if drawn < limits["draws"]:
            told.append(f"Give num_samples={limits['draws']:.0f} at the least, better ten times as many.")
        elif fit.snapshots and not other_modes:
            told.append(f"Give keep={sorted(fit.snapshots)!r} to store every draw of them, if memory allows.")
    if other_modes:  # not a matter of length
        return told
    short = pd.concat([those(checks, part) for part in ("topics", "coefficients", "parameters", "sampler")])
    ess = [row["threshold"] / max(row["value"], 1.0) for name, row in short.iterrows() if name.startswith("effective")]
    unmixed = [name for name, row in short.iterrows() if name.startswith("R-hat") and not pd.isna(row["value"])]
    times = max(ess, default=2.0 if unmixed else 0.0)
    if times > MOST_TIMES:
        told.append(
            f"Effective draws are {times:.0f} times too few, which length alone will hardly fix: give a longer num_warmup "
            "first, and look at the traces in the report."
        )
    elif times:
        start = f"num_warmup={_round(2 * int(fit.info.get('num_warmup') or drawn))} and " if unmixed else ""
        told.append(f"Give {start}num_samples={_round(1.5 * times * drawn)}: effective draws grow with them.")
    return told


def _round(number: float) -> int:
    """Up to two digits."""
    size = 10 ** max(int(np.floor(np.log10(max(number, 1)))) - 1, 0)
    return int(np.ceil(number / size) * size)


def _of_approximations(fit: AlignedFit, checks: pd.DataFrame) -> list[str]:
    passes: Any = checks["passes"]
    told = []
    if passes.get("ran to its end", True) is False:
        told.append("Run it to its end.")
    if passes.get("the loss rests", True) is not True:
        told.append("Give more num_steps.")
    if passes.get("the bound rests", True) is not True:
        told.append(f"Give more {'passes' if 'passes' in fit.info else 'num_iterations'}.")
    if serving(fit.info):
        return told
    if any("saved fit" in meaning for meaning in checks["meaning"]):
        told.append("Diagnose the fit before it is saved.")
    elif passes.get("importance ratios of the global sites", True) is False or "the bound rests" in passes:
        told.append("For intervals and for other modes compare with gibbs, two chains or more.")
    fails = {name for name in checks.index if passes[name] is False}
    num_starts = len(fit.alignment.permutations)
    told += [line.replace("num_chains", "num_starts") for line in _about_predictions(checks, fails, num_starts)]
    if ONE_OPTIMUM in passes:
        told.append(
            "Predictions of one optimum under a margin may be well below those of gibbs, however well the bound rests: "
            "give num_starts=4, or compare with gibbs where they count."
        )
    return told
