"""Ratings from text: predictive R^2 over the number of topics, as in figure 2 of Blei & McAuliffe (2007).

    python benchmarks/ratings.py --into FILE                  # hours on two cores; parts in FILE are not run again
    python benchmarks/ratings.py --methods lasso,ridge --folds 0,1 --into FILE
    python benchmarks/ratings.py --from FILE [FILE ...] --write

Five shuffled folds of the film reviews of Pang & Lee (2005), which are not part of the project (--data FOLDER). Ratings are
in standard units of the training part. Every choice is made inside the training part: gamma of the topic models on one
split of it (80/20), penalties by five-fold cross-validation. Intervals are calibrated with the predictions of that split.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import pandas as pd
from measuring import Results, add_options, circumstances, frame, show
from speed import load, predictive_r2

TOPICS = (5, 10, 20, 30, 50)
PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn", "tomotopy")
GAMMAS = (0.05, 0.1)
WITHOUT_TOPICS = ("lasso", "ridge")
METHODS = ("gibbs", "vem", "lda + regression", "tomotopy", *WITHOUT_TOPICS)


def fold(rating, number):
    from sklearn.model_selection import KFold

    train, test = list(KFold(5, shuffle=True, random_state=0).split(rating))[number]
    return train, test, (rating - rating[train].mean()) / rating[train].std()


def inner_split(train):
    order = np.random.default_rng(1).permutation(train)
    return order[len(order) // 5 :], order[: len(order) // 5]


def covered(y, interval):
    return float(np.mean((y >= interval[:, 0]) & (y <= interval[:, 1])))


def likelihood(fit, corpus):
    """log p(w) a word of held-out documents at the mean topics of a chain, by Chib's method (on a CPU: it is serial)."""
    import jax

    from topiczoo.diagnostics.scoring.evidence import chib

    with jax.default_device(jax.devices("cpu")[0]):
        found = chib(fit.means["beta"][0], 0.1, corpus, num_sweeps=10, num_burn=20, repeats=1)
    return float(found.log_likelihood.sum() / corpus.lengths.sum())


def fit_gibbs(corpus, y, topics, gamma, short, chains):
    from topiczoo import inference, models

    steps = {"num_warmup": 80, "num_samples": 40} if short else {"num_warmup": 300, "num_samples": 300}
    return inference.gibbs(
        models.slda, corpus, y, num_topics=topics, alpha=0.1, gamma=gamma, num_chains=2 if short else chains,
        progress_bar=False, **steps,
    )  # fmt: skip


def fit_vem(corpus, y, topics, gamma, short, chains):
    from topiczoo import inference, models

    return inference.vem(
        models.slda, corpus, y, num_topics=topics, alpha=0.1, gamma=gamma, num_iterations=40, progress_bar=False
    )


def part_topic_model(fit, data, number, topics, chains):
    """gamma by the inner split, then the whole training part."""
    from topiczoo import corpora

    counts, vocabulary, rating = data
    train, test, y = fold(rating, number)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    inner, aside = inner_split(train)
    tried = {}
    for gamma in GAMMAS:
        prediction = fit(corpus[inner], y[inner], topics, gamma, True, chains).predict(corpus[aside])
        tried[gamma] = predictive_r2(y[aside], prediction.mean), prediction
    gamma = max(tried, key=lambda gamma: tried[gamma][0])
    fitted = fit(corpus[train], y[train], topics, gamma, False, chains)
    prediction = fitted.predict(corpus[test], calibrate=(tried[gamma][1], y[aside]))
    raw = replace(prediction, calibration=None)
    plug_in = fitted.predict(corpus[test], rule="plug-in")
    return {
        "r2": predictive_r2(y[test], prediction.mean), "gamma": gamma,
        "r2 of each chain": [predictive_r2(y[test], chain.mean(0)) for chain in prediction.expected],
        "r2 plug-in": predictive_r2(y[test], plug_in.mean), "covered": covered(y[test], raw.interval(0.9)),
        "covered, calibrated": covered(y[test], prediction.interval(0.9)),
        "words": likelihood(fitted, corpus[test][:300]),
        "inner r2": {str(gamma): value for gamma, (value, _) in tried.items()},
    }  # fmt: skip


def part_lda_and_regression(data, number, topics):
    """Topics without ratings by variational EM, then least squares on the documents' mean topics."""
    from sklearn.linear_model import LinearRegression

    from topiczoo import corpora, inference, models

    counts, vocabulary, rating = data
    train, test, y = fold(rating, number)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)

    def scored(kept, left, gamma):
        fit = inference.vem(
            models.lda, corpus[kept], num_topics=topics, alpha=0.1, gamma=gamma, num_iterations=60, e_iterations=20,
            progress_bar=False,
        )  # fmt: skip
        shares = fit.transform(corpus[np.concatenate([kept, left])])
        line = LinearRegression(fit_intercept=False).fit(shares[: len(kept)], y[kept])
        return predictive_r2(y[left], line.predict(shares[len(kept) :])), fit

    inner = {gamma: scored(*inner_split(train), gamma)[0] for gamma in GAMMAS}
    gamma = max(inner, key=inner.get)
    r2, fit = scored(train, test, gamma)
    return {"r2": r2, "gamma": gamma, "words": likelihood(fit, corpus[test][:300])}


def part_tomotopy(data, number, topics):
    """SLDA with its default settings, 300 sweeps, and 100 sweeps to infer new documents."""
    import tomotopy

    counts, vocabulary, rating = data
    train, test, y = fold(rating, number)

    def words(row):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        return [vocabulary[w] for w in np.repeat(counts.indices[part], counts.data[part].astype(int))]

    model = tomotopy.SLDAModel(k=topics, vars=["l"], seed=1)
    for row in train:
        model.add_doc(words(row), y=[float(y[row])])
    model.train(300, workers=2)
    new = [model.make_doc(words(row)) for row in test]
    model.infer(new, iterations=100, workers=2)
    return {"r2": predictive_r2(y[test], np.array([model.estimate(document)[0] for document in new]))}


def part_lasso(data, number):
    """On the documents' shares of words, as in the paper; documents stand by author, so inner folds are shuffled."""
    from sklearn.linear_model import LassoCV
    from sklearn.model_selection import KFold

    counts, _, rating = data
    train, test, y = fold(rating, number)
    shares = counts.multiply(1 / counts.sum(1).reshape(-1, 1)).tocsc()
    scale = np.sqrt(shares[train].power(2).mean(0).max())
    inner = KFold(5, shuffle=True, random_state=0)
    model = LassoCV(alphas=30, cv=inner, n_jobs=2, max_iter=3000).fit(shares[train] / scale, y[train])
    return {"r2": predictive_r2(y[test], model.predict(shares[test] / scale))}


def part_ridge(data, number):
    """On log(1 + count)."""
    from sklearn.linear_model import RidgeCV

    counts, _, rating = data
    train, test, y = fold(rating, number)
    logs = np.log1p(counts.toarray())
    model = RidgeCV(np.logspace(1, 5, 13)).fit(logs[train], y[train])
    return {"r2": predictive_r2(y[test], model.predict(logs[test]))}


def part(method, data, number, topics, chains):
    if method == "gibbs":
        return part_topic_model(fit_gibbs, data, number, topics, chains)
    if method == "vem":
        return part_topic_model(fit_vem, data, number, topics, 1)
    if method in WITHOUT_TOPICS:
        return {"lasso": part_lasso, "ridge": part_ridge}[method](data, number)
    return {"lda + regression": part_lda_and_regression, "tomotopy": part_tomotopy}[method](data, number, topics)


def table(found: pd.DataFrame) -> str:
    """Mean and spread over folds, methods down and topics across."""
    lines = ["| method | " + " | ".join(f"K = {k}" for k in TOPICS) + " |", "|---|" + "---|" * len(TOPICS)]

    def cell(rows: pd.DataFrame, column: str = "r2") -> str:
        values = rows[column].dropna() if column in rows else rows.iloc[:0]
        spread = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
        return f"{values.mean():.3f}{spread} ({len(values)})" if len(values) else ""

    names = {
        "r2": "", "r2 plug-in": ", plug-in rule", "covered": ", held by the raw 90% interval",
        "covered, calibrated": ", held by the calibrated one", "words": ", log p of a held-out word",
    }  # fmt: skip
    for method in METHODS:
        rows = found[found["method"] == method]
        for column, name in names.items():
            if method in WITHOUT_TOPICS and column == "r2":
                lines.append(f"| {method} | {cell(rows)} |" + " |" * (len(TOPICS) - 1))
            elif method not in WITHOUT_TOPICS:
                cells = [cell(rows[rows["topics"] == k], column) for k in TOPICS]
                if any(cells):
                    lines.append(f"| {method}{name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data/movie-reviews")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--topics", default=",".join(map(str, TOPICS)))
    parser.add_argument("--folds", default="0,1,2,3,4")
    parser.add_argument("--chains", type=int, default=4)
    add_options(parser)
    parser.add_argument("--where", default=None, help="the machine of the earlier runs, in words")
    arguments = parser.parse_args()
    if arguments.files:
        found = frame(arguments.files)
        where = arguments.where or circumstances(__file__, PACKAGES)
        text = f"{where}\n\n{table(found)}\n\nMean ± standard deviation (number of folds)."
        show(text, "Ratings of films, five-fold cross-validation", arguments.write)
        return
    data = load(arguments.data)
    results = Results(arguments.into, ("method", "fold", "topics"))
    for method in arguments.methods.split(","):
        for topics in [None] if method in WITHOUT_TOPICS else map(int, arguments.topics.split(",")):
            for number in map(int, arguments.folds.split(",")):
                task = method, data, number, topics, arguments.chains
                results.part((method, number, topics), lambda task=task: part(*task))


if __name__ == "__main__":
    main()
