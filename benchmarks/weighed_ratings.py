"""Ratings from text by many short chains whose response has a weight, over five folds.

    python benchmarks/weighed_ratings.py --data FOLDER      # film reviews of Pang & Lee (2005), not part of the project
    python benchmarks/weighed_ratings.py --data FOLDER --inner    # the settings compared on a split of each training part

Folds are those of ratings.py. Weight and number of topics were chosen with --inner on the first fold's training part; the
test parts were looked at once. Predictions are the mean over chains, intervals are calibrated by the documents that a fit
with a weight holds out; beside it the same chains weighted by stacking on these documents, and ridge regression on log word
counts, its penalty by cross-validation.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from measuring import parsed
from ratings import covered, fold, inner_split
from speed import load, predictive_r2

SETTINGS = {"num_topics": 50, "response_weight": 30, "alpha": 0.1, "gamma": 0.05}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", default="0,1,2,3,4")
    parser.add_argument("--chains", type=int, default=24)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--weight", type=float, default=SETTINGS["response_weight"])
    parser.add_argument("--topics", type=int, default=SETTINGS["num_topics"])
    parser.add_argument("--inner", action="store_true", help="a split of the training part, for choosing settings")
    options = parsed(parser)
    from sklearn.linear_model import RidgeCV

    from topiczoo import inference, models
    from topiczoo.corpora import Corpus

    counts, vocabulary, rating = load(options.data)
    corpus = Corpus.from_counts(counts, vocabulary)
    settings = {**SETTINGS, "num_topics": options.topics, "response_weight": options.weight}
    rows = []
    for number in map(int, options.folds.split(",")):
        train, test, y = fold(rating, number)
        if options.inner:
            train, test = inner_split(train)
            y = (rating - rating[train].mean()) / rating[train].std()
        began = time.perf_counter()
        fit = inference.gibbs(
            models.slda, corpus[train], y[train], num_warmup=options.warmup, num_samples=30, thinning=10,
            num_chains=options.chains, seed=number, progress_bar=False, **settings,
        )  # fmt: skip
        fitted = time.perf_counter() - began
        found = fit.predict(corpus[test], seed=number)
        stacked = fit.predict(corpus[test], seed=number, chains="stacked")
        words = np.log1p(corpus.counts.toarray())
        ridge = RidgeCV(np.logspace(1, 4, 10)).fit(words[train], y[train]).predict(words[test])
        rows.append(
            [
                predictive_r2(y[test], found.mean),
                covered(y[test], found.interval(0.9)),
                predictive_r2(y[test], ridge),
                predictive_r2(y[test], stacked.mean),
            ]
        )
        seconds = time.perf_counter() - began
        print(
            f"fold {number}: R^2 {rows[-1][0]:.3f}, {rows[-1][1]:.1%} inside the 90% interval, ridge {rows[-1][2]:.3f}, "
            f"stacked {rows[-1][3]:.3f} (largest weight {stacked.weights.max():.2f}); "
            f"{fitted:.0f} s to fit, {seconds:.0f} s in all",
            flush=True,
        )
    mean = np.mean(rows, 0)
    print(f"mean: R^2 {mean[0]:.3f}, {mean[1]:.1%} inside the 90% interval, ridge {mean[2]:.3f}, stacked {mean[3]:.3f}")


if __name__ == "__main__":
    main()
