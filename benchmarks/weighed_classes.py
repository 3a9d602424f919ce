"""Twenty newsgroups by softmax sLDA whose response has a weight: the mean of many short chains of gibbs.

    python benchmarks/weighed_classes.py --data ../shared/data --inner --weights 1,10,30 --topics 40,80
    python benchmarks/weighed_classes.py --data ../shared/data --weights 30 --topics 40 --chains 16

Posts, terms and split are those of margins.py (no stop words, square roots of counts). --inner: a fifth of the training
posts in the place of the test posts, for choosing weight and number of topics. Naive Bayes on the same counts, its alpha by
cross-validation, runs beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from margins import load


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--topics", default="40")
    parser.add_argument("--weights", default="30")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--gamma", type=float, default=0.1)
    parser.add_argument("--scale", type=float, default=6.0, help="of the coefficients' prior")
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=80)
    parser.add_argument("--start", default="merged", choices=["merged", "random"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inner", action="store_true", help="a split of the training part, for choosing settings")
    options = parser.parse_args()
    from sklearn.model_selection import GridSearchCV
    from sklearn.naive_bayes import MultinomialNB

    from topiczoo import inference, models

    corpus, groups, train, test = load(options.data, "classes")
    if options.inner:
        mixed = np.random.default_rng(options.seed).permutation(train)
        train, test = np.sort(mixed[len(mixed) // 5 :]), np.sort(mixed[: len(mixed) // 5])
    bayes = GridSearchCV(MultinomialNB(), {"alpha": np.logspace(-3, 0, 7)}).fit(corpus.counts[train], groups[train])
    told = {"part": "inner" if options.inner else "test", "naive Bayes": bayes.score(corpus.counts[test], groups[test])}
    print(json.dumps(told), flush=True)
    for topics in map(int, options.topics.split(",")):
        for weight in map(float, options.weights.split(",")):
            began = time.perf_counter()
            fit = inference.gibbs(
                models.slda_glm, corpus[train], groups[train], response="softmax", outputs=20, num_topics=topics,
                alpha=options.alpha, gamma=options.gamma, scale=options.scale, start=options.start, response_weight=weight,
                num_chains=options.chains,
                num_warmup=options.warmup, num_samples=20, thinning=10, seed=options.seed, progress_bar=False,
            )  # fmt: skip
            fitted = time.perf_counter() - began
            found = fit.predict(corpus[test], seed=options.seed)
            row = {"topics": topics, "weight": weight, "right": float((found.label == groups[test]).mean())}
            row |= {"alpha": options.alpha, "gamma": options.gamma, "scale": options.scale, "start": options.start}
            row |= {"fit": round(fitted), "seconds": round(time.perf_counter() - began)}
            print(json.dumps(row), fit.info.get("sweep", ""), flush=True)


if __name__ == "__main__":
    main()
