"""How long until predictions are good: predictive R^2 against seconds, supervised LDA beside tomotopy's, on film reviews.

    python benchmarks/time_to_quality.py [--data FOLDER] [--compiled] [--write]

The first of the five folds of ratings.py, K=50. Each row is a process of its own: topiczoo's with so many sweeps of warm-up
and ten draws, twice in a row, so that the second has its programs on the disk; tomotopy's, with its own defaults and
two workers, goes on from one row to the next. Seconds run from the documents in memory to the last prediction of the test
part, by the clock; those of tomotopy are of all training so far and of one prediction. Importing is in neither. --compiled
sweeps by `inference.compile_sweep`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from measuring import circumstances, show
from speed import ALPHA, GAMMA, HERE, TOPICS, first_fold, load, predictive_r2, tomotopy_model, tomotopy_predictions

SWEEPS, ITERATIONS = (5, 10, 20, 40, 80), (10, 20, 40, 80, 160, 320)
MARK = 0.36  # what tomotopy reaches in 600 iterations (benchmarks/speed.py)
DRAWS = 10
TITLE = "film reviews, seconds until predictions are good"
PACKAGES = ("topiczoo", "jax", "numpyro", "tomotopy", "scikit-learn")


def ours(data, compiled, sweeps, chains):
    from topiczoo import corpora, inference, models

    counts, vocabulary, rating = load(data)
    train, test, y = first_fold(counts, rating)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    if compiled:
        inference.compile_sweep()
    began = time.perf_counter()
    fit = inference.gibbs(
        models.slda, corpus[train], y[train], num_topics=TOPICS, alpha=ALPHA, gamma=GAMMA, start="random",
        num_warmup=sweeps, num_samples=DRAWS, num_chains=chains, progress_bar=False,
    )  # fmt: skip
    fitted = time.perf_counter() - began
    found = predictive_r2(y[test], fit.predict(corpus[test]).mean)
    return {"R^2": found, "seconds": time.perf_counter() - began, "fitted": fitted}


def theirs(data):
    """Rows of R^2 and seconds, of one model that is trained on."""
    counts, vocabulary, rating = load(data)
    train, test, y = first_fold(counts, rating)
    began = time.perf_counter()
    model = tomotopy_model(counts[train], vocabulary, y[train])
    seconds, done = time.perf_counter() - began, 0
    for number in ITERATIONS:
        began = time.perf_counter()
        model.train(number - done, workers=2)
        seconds, done, began = seconds + time.perf_counter() - began, number, time.perf_counter()
        found = predictive_r2(y[test], tomotopy_predictions(model, counts[test], vocabulary))
        predicted = time.perf_counter() - began
        yield {"R^2": found, "seconds": seconds + predicted, "fitted": seconds}


def alone(options, cache, *part):
    command = [sys.executable, __file__, "--data", options.data, *["--compiled"] * options.compiled, "--part", *part]
    found = subprocess.check_output(command, text=True, env={**os.environ, "TOPICZOO_CACHE": cache})
    return json.loads(found.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(HERE.parent.parent / "shared/data/movie-reviews"))
    parser.add_argument("--compiled", action="store_true", help="sweep by C++")
    parser.add_argument("--only", choices=["topiczoo", "tomotopy"])
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/results.md")
    parser.add_argument("--part", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(ours(options.data, options.compiled, *options.part)))
        return
    lines = ["| what | R^2 | seconds to fit and predict | of them to fit |", "|---|---|---|---|"]

    def tell(what, found):
        best = "**" if found["R^2"] >= MARK else ""
        lines.append(f"| {what} | {best}{found['R^2']:.3f}{best} | {found['seconds']:.1f} | {found['fitted']:.1f} |")
        print(lines[-1], flush=True)

    if options.only != "tomotopy":
        for chains in (1, 2):
            for sweeps in SWEEPS:
                with tempfile.TemporaryDirectory() as cache:
                    for programs in ("no program kept", "programs on the disk"):
                        found = alone(options, cache, str(sweeps), str(chains))
                        tell(f"topiczoo, {sweeps} + {DRAWS} sweeps, chains: {chains}, {programs}", found)
    if options.only != "topiczoo":
        for number, found in zip(ITERATIONS, theirs(options.data), strict=True):
            tell(f"tomotopy, {number} iterations", found)
    show(f"{circumstances(__file__, PACKAGES)}\n\n" + "\n".join(lines), TITLE, options.write)


if __name__ == "__main__":
    main()
