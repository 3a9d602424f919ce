"""Ratings of films by max-margin topics: R^2 over the number of topics, as in figure 7 of Zhu, Ahmed & Xing (2012).

    python benchmarks/margin_ratings.py --methods medlda,slda --folds 0 --into FILE   # parts in FILE are not run again
    python benchmarks/margin_ratings.py --from FILE [FILE ...] --write

Five shuffled folds of the reviews of Pang & Lee (2005), those of ratings.py; ratings in standard units of the training part.
medlda: the full form, a normal response and a margin; partial: the margin alone; slda: the normal response alone; lda+svr:
LDA, then the same machine on its E[zbar]; all by variational EM. svr: a linear machine on log(1 + count). The weight of the
loss and the rule of prediction are chosen on a fifth of the training part, anew for each fold, with the first number of
topics asked for.
"""

from __future__ import annotations

import argparse

import numpy as np
from measuring import Results, add_options, cell, circumstances, frame, show, table_of
from ratings import fold, inner_split
from speed import load, predictive_r2

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
TOPICS = (10, 5, 15, 20, 30)
GAMMA = 0.05
WEIGHTS = {"medlda": (4.0, 16.0), "partial": (16.0, 64.0), "slda": (None,), "lda+svr": (4.0, 16.0)}
NAMES = {
    "medlda": "MedLDA", "partial": "MedLDA, margin alone", "slda": "sLDA", "lda+svr": "LDA + SVR", "svr": "SVR on words"
}  # fmt: skip
RULES = ("plug-in", "posterior")


def fit_and_predict(method, corpus, y, kept, left, topics, weight):
    """Predictions of the documents left, by rule."""
    from topiczoo import inference, models

    common = {
        "num_topics": topics,
        "alpha": 0.1,
        "gamma": GAMMA,
        "num_iterations": 40,
        "num_starts": 1,
        "progress_bar": False,
    }
    if method == "lda+svr":
        return {"plug-in": lda_svr(inference.vem(models.lda, corpus[kept], **common), corpus, y, kept, left, weight)}
    if method == "slda":
        fit = inference.vem(models.slda, corpus[kept], y[kept], **common)
    else:
        margin = "regression" if method == "medlda" else "partial"
        fit = inference.vem(models.medlda, corpus[kept], y[kept], margin=margin, weight=weight, **common)
    return {rule: fit.predict(corpus[left], rule=rule).mean for rule in RULES}


def lda_svr(fit, corpus, y, kept, left, weight):
    import jax.numpy as jnp

    from topiczoo.inference.predictive.fold_in import FoldIn
    from topiczoo.inference.predictive.predicting import plug_in_topics
    from topiczoo.inference.steps.support_vectors import TUBE, n_slack

    def topics(at):
        fold = FoldIn(fit, corpus[at])
        return np.asarray(plug_in_topics(fold, fold.means(0))[1])

    parameters = {"weight": jnp.float32(weight), "epsilon": jnp.float32(1e-3)}
    found = n_slack(
        TUBE, topics(kept), y[kept].astype(np.float32), np.ones((fit.means["beta"].shape[1], 1)), parameters
    )
    return topics(left) @ found.coefficients[:, 0]


def svr(counts, y, train, test):
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.svm import LinearSVR

    logs = counts.astype(float).log1p()
    inner = KFold(5, shuffle=True, random_state=0)
    grid = {"C": [1e-3, 3e-3, 1e-2, 3e-2, 1e-1]}
    model = GridSearchCV(LinearSVR(epsilon=0.1, max_iter=20_000), grid, cv=inner).fit(logs[train], y[train])
    return {"r2": {"plug-in": predictive_r2(y[test], model.predict(logs[test]))}, "settings": model.best_params_}


def part(method, data, number, topics, settings):
    from topiczoo import corpora

    counts, vocabulary, rating = data
    train, test, y = fold(rating, number)
    if method == "svr":
        return svr(counts, y, train, test)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    if settings is None:
        inner, aside = inner_split(train)
        tried = {}
        for weight in WEIGHTS[method]:
            found = fit_and_predict(method, corpus, y, inner, aside, topics, weight)
            tried |= {(weight, rule): predictive_r2(y[aside], mean) for rule, mean in found.items()}
        settings = dict(zip(("weight", "rule"), max(tried, key=tried.get), strict=True))
    found = fit_and_predict(method, corpus, y, train, test, topics, settings["weight"])
    return {"r2": {rule: predictive_r2(y[test], mean) for rule, mean in found.items()}, "settings": settings}


def table(found):
    """Methods down, topics across; each by the rule that its inner split preferred."""
    order, rows = sorted(TOPICS), []
    for method, name in NAMES.items():
        parts = [
            found[(found["method"] == method) & (found["topics"] == k)] for k in (order if method != "svr" else (0,))
        ]
        rules = [[row["r2"][row["settings"].get("rule", "plug-in")] for _, row in part.iterrows()] for part in parts]
        rows.append((name, [cell(values) for values in rules]))
    return table_of("method", [f"K = {k}" for k in order], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data/movie-reviews")
    parser.add_argument("--methods", default=",".join(NAMES))
    parser.add_argument("--topics", default=",".join(map(str, TOPICS)))
    parser.add_argument("--folds", default="0,1,2,3,4")
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.files:
        made = "`python benchmarks/margin_ratings.py --methods M --folds F --into FILE`, a process a core, shown by "
        text = f"{made}{circumstances(__file__, PACKAGES)}\n\n{table(frame(arguments.files))}\n\n"
        text += "Predictive R^2, mean ± standard deviation (number of folds)."
        show(text, "Max-margin topics, ratings of films", arguments.write)
        return
    data = load(arguments.data)
    results = Results(arguments.into, ("method", "fold", "topics"))
    for number in map(int, arguments.folds.split(",")):
        for method in arguments.methods.split(","):
            settings = None
            for topics in map(int, arguments.topics.split(",")) if method != "svr" else (0,):
                task = method, data, number, topics, settings
                row = results.part((method, number, topics), lambda task=task: part(*task))
                settings = settings or row["settings"]


if __name__ == "__main__":
    main()
