"""Reference posteriors of posteriordb's six LDA posteriors, which are "multimodal" and have none.

`three_docs1200` is summed exactly (exact_lda.py). The others are drawn by two methods that share no code: the package's
gibbs, each chain from its own start, and parallel tempering in NumPy (tempering.py), whose walkers cross modes, or, of the
novel, tomotopy's collapsed sampler from random topics. All are label-invariant quantities (label_invariants.py). A posterior
is called a reference where both methods agree within four standard errors of their difference and posteriordb's criteria
hold: 10,000 draws, R-hat below 1.01, lag-1 autocorrelation within 0.05. Where they do not, the file says so. The novel's
chains by gibbs were run on a GPU: two and a half and five minutes of an H200.

    python benchmarks/reference_posteriors.py --data FOLDER --into DRAWS          # make them, print how methods compare
    python benchmarks/reference_posteriors.py --data FOLDER --into DRAWS --write  # and write them
    python benchmarks/reference_posteriors.py --data FOLDER --engines gibbs nuts  # engines against what is written

FOLDER holds posteriordb's NAME.json.zip; DRAWS keeps draws, so that what was run is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from label_invariants import invariants, summary
from reference_files import Summary, apart, table, together, write
from reference_runs import POSTERIORS, Run, kept, load
from tempering import Words

FILES = Path(__file__).resolve().parent / "reference_posteriors"
TEMPERING = {"seed": 26, "temperatures": 40, "tuning": [200, 200, 200], "ladders": 3, "draws": 6_000, "thinning": 1}
GIBBS = {"engine": "gibbs", "seed": 26, "chains": 10, "draws": 10_000, "thinning": 2, "num_warmup": 200}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "three_docs1200-ldaK2": {
        "summation": {"seed": 26, "draws": 10_000},
        "engine": GIBBS | {"thinning": 1, "num_warmup": 300, "starts": 6},
    },
    **{
        f"three_men{number}-ldaK2": {
            "engine": GIBBS | {"num_warmup": warmup, "thinning": thinning},
            "tempering": TEMPERING,
        }
        for number, warmup, thinning in ((1, 1000, 2), (2, 1000, 3), (3, 200, 2))
    },
    **{  # of many steps that are not drawn: chains come into the one mode late, and move slowly there
        f"prideprejudice_{part}-ldaK5": {
            "engine": GIBBS | {"chains": 200, "num_warmup": 10_000, "thinning": thinning},
            "tomotopy": {"seed": 26, "chains": 10, "draws": 1_000, "num_warmup": 10_000, "thinning": 500},
        }
        for part, thinning in (("chapter", 1000), ("paragraph", 2000))
    },
}
ENGINES: dict[str, dict[str, Any]] = {
    "gibbs": GIBBS | {"seed": 1, "thinning": 1, "draws": 4_000},
    "nuts": {"engine": "nuts", "seed": 26, "chains": 4, "draws": 2_000, "num_warmup": 500},
    "vem": {"engine": "vem", "seed": 26, "chains": 1, "draws": 1_000},
    "svi": {"engine": "svi", "seed": 26, "chains": 1, "draws": 1_000},
}


def summarised(words: Words, run: Run) -> Summary:
    """The summary of a run; means that are known without error have none."""
    names, found = invariants(words)[0], summary(run.draws)
    for name, mean in run.told.get("exact_means", {}).items():
        found["mean"][names.index(name)], found["mcse_mean"][names.index(name)] = mean, 0.0
    return found


def files_of(posterior: str, words: Words, first: Run, second: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """A posterior's summary and its information, in posteriordb's form."""
    runs = [(run, summarised(words, run)) for run in (first, second)]
    return together(posterior, invariants(words)[0], *runs, "documents and terms from 1")


def make(posterior: str, data: Path, into: Path | None, writes: bool) -> None:
    """Run both methods, print how they compare, and write the files."""
    words = load(data, posterior)
    first, second = (kept(into, posterior, method, words, s) for method, s in SETTINGS[posterior].items())
    numbers, info = files_of(posterior, words, first, second)
    one, other = (run.told["settings"].get("engine", run.told["method"]) for run in (first, second))
    print(f"\n## {posterior}: {'a reference' if info['is_reference'] else 'NOT A REFERENCE'}\n")
    print(table(numbers["names"], summarised(words, first), {other: summarised(words, second)}, one))
    for part in (info["inference"], info["second_method"]["inference"]):
        print(json.dumps(part))
    print(json.dumps(info["checks_made"]), flush=True)
    if writes:
        write(FILES, posterior, {"json": numbers, "info.json": info})


def compare(posterior: str, data: Path, into: Path | None, engines: list[str]) -> None:
    """Engines against a posterior's file: differences in standard errors and in posterior standard deviations."""
    reference = json.loads((FILES / f"{posterior}.json").read_text())
    info = json.loads((FILES / f"{posterior}.info.json").read_text())
    words = load(data, posterior)
    print(f"\n## engines against {posterior}" + ("" if info["is_reference"] else ", which is NOT A REFERENCE") + "\n")
    for engine in engines:
        run = kept(into and into / "engines", posterior, "engine", words, ENGINES[engine])
        found = summary(run.draws)
        several = len(run.draws) > 1
        told = f"R-hat at most {max(found['r_hat']):.3f}" if several else "independent draws of an approximation"
        far = apart(reference, found)
        deviations = (np.array(found["mean"]) - reference["mean"]) / reference["sd"]
        print(
            f"{engine}: {told}; largest difference {np.abs(far).max():.2f} MCSE, "
            f"{np.abs(deviations).max():.3f} posterior standard deviations. In MCSE:"
        )
        print(
            ", ".join(f"{name} {value:+.2f}" for name, value in zip(reference["names"], far, strict=True)), flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of posteriordb's NAME.json.zip")
    parser.add_argument("--posteriors", nargs="+", default=list(POSTERIORS), choices=list(POSTERIORS))
    parser.add_argument("--into", type=Path, help="a folder for draws; what is there is not run again")
    parser.add_argument("--write", action="store_true", help="write benchmarks/reference_posteriors/")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), help="run these against the files")
    options = parser.parse_args()
    for posterior in options.posteriors:
        if not (options.data / f"{posterior.rsplit('-', 1)[0]}.json.zip").is_file():
            sys.exit(
                f"--data is {str(options.data)!r}, which holds no data of {posterior}; give the folder of posteriordb's."
            )
        if options.engines:
            compare(posterior, options.data, options.into, options.engines)
        else:
            make(posterior, options.data, options.into, options.write)


if __name__ == "__main__":
    main()
