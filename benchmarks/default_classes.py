"""Classes by stories with their default arguments, on corpora that nobody tuned for, beside tuned peers in the same run.

    python benchmarks/default_classes.py --into FILE [--methods naive-bayes,sage_nb] [--corpora bbc-news] [--shares 0.05,1]
    python benchmarks/default_classes.py --from FILE --write

A seed draws 1,500 training documents (three quarters of all, where there are fewer) and 1,000 test documents; a share of the
training documents is read, with the terms that they say. "short" corpora are thinned to some 12 words a document. sage_nb,
sage_nb-jeffreys (the paper's prior): by vem. naive-bayes: scikit-learn's MultinomialNB, alpha one of eight by five-fold
cross-validation, classes by their shares. medlda-vem, medlda-gibbs: every argument of the story and of the engine at its
default, the 4,000 terms of most documents alone. svm: LinearSVC on tf-idf, C chosen among six by five-fold cross-validation.
Everything that is chosen is chosen in what is read.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Results, asked, cell, shown, table_of
from scipy import sparse

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
TRAINING, TEST, SHORT, MOST_TERMS = 1500, 1000, 12, 4000
ALPHAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
CORPORA = {  # classes from documents.csv
    "newsgroups20": lambda table: table["group"],
    "bbc-news": lambda table: table["category"],
    "political-blogs/rating": lambda table: table["rating"],
    "political-blogs/blog": lambda table: table["blog"],
    "movie-reviews/author": lambda table: table["author"],
    "movie-reviews/thirds": lambda table: np.digitize(table["rating"], [0.45, 0.65]),
    "geotext/quarters": lambda table: 2 * (table["latitude"] > 37.5) + (table["longitude"] > -90),
    "nips12/era": lambda table: np.digitize(table["year"], [1991, 1995]),
}
NAMES = tuple(CORPORA) + tuple(f"{name} short" for name in CORPORA)
METHODS = ("naive-bayes", "sage_nb", "sage_nb-jeffreys")


def load(folder, name, share, seed):
    """Counts and classes of training and test documents."""
    short, name = name.endswith(" short"), name.removesuffix(" short")
    folder = Path(folder) / name.split("/")[0]
    counts = sparse.load_npz(folder / "counts.npz").tocsr()
    codes = np.unique(np.asarray(CORPORA[name](pd.read_csv(folder / "documents.csv"))), return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    if short:
        lengths = np.repeat(np.asarray(counts.sum(1)).ravel(), np.diff(counts.indptr))
        counts.data = rng.binomial(counts.data.astype(int), np.minimum(1, SHORT / lengths))
        counts.eliminate_zeros()
    order = rng.permutation(np.flatnonzero(np.asarray(counts.sum(1)).ravel() > 0))
    whole = min(TRAINING, 3 * len(order) // 4)
    train, test = order[: round(share * whole)], order[whole : whole + TEST]
    used = np.asarray((counts[train] > 0).sum(0)).ravel() > 0
    return counts[train][:, used], codes[train], counts[test][:, used], codes[test]


def chosen(model, grid, *data):
    """Accuracy of a machine with its strength chosen by five-fold cross-validation."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    search = GridSearchCV(model, grid, cv=StratifiedKFold(5, shuffle=True, random_state=0)).fit(*data[:2])
    return {"accuracy": search.score(*data[2:]), **{key.split("__")[-1]: v for key, v in search.best_params_.items()}}


def by_story(method, counts, codes, new, truth, seed):
    """Accuracy of a story with its defaults."""
    from topiczoo import inference, models
    from topiczoo.corpora import Corpus

    terms = np.arange(counts.shape[1])
    if method.startswith("medlda"):
        terms = np.sort(np.argsort(-np.asarray((counts > 0).sum(0)).ravel(), kind="stable")[:MOST_TERMS])
    corpus = Corpus.from_counts(counts[:, terms], empty="keep")
    rows = np.flatnonzero(corpus.lengths > 0)
    corpus, codes = corpus[rows], codes[rows]
    new = Corpus.from_counts(new[:, terms], corpus.vocabulary, empty="keep")
    classes, codes = np.unique(codes, return_inverse=True)  # nobody knows of a class that has not been seen
    given = {"outputs": len(classes), "seed": seed, "progress_bar": False}
    if method.startswith("medlda"):
        fit = getattr(inference, method.split("-")[1])(models.medlda, corpus, codes, **given)
    else:
        prior = {"prior": "jeffreys"} if method.endswith("jeffreys") else {}
        fit = inference.vem(models.sage_nb, corpus, codes, background=models.background(corpus), **given, **prior)
    found = {"accuracy": float(np.mean(classes[fit.predict(new, calibrate=False).code] == truth))}
    if "deviation" in fit.sites:
        found["zeros"] = models.share_of_zeros(fit.means["deviation"])
    return found


def part(method, data, name, share, seed):
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    parts = load(data, name, share, seed)
    told = {"documents": len(parts[1]), "terms": parts[0].shape[1]}
    if method == "naive-bayes":
        return told | chosen(MultinomialNB(), {"alpha": ALPHAS}, *parts)
    if method == "svm":
        machine = make_pipeline(TfidfTransformer(sublinear_tf=True), LinearSVC())
        return told | chosen(machine, {"linearsvc__C": STRENGTHS}, *parts)
    return told | by_story(method, *parts, seed)


def table(found):
    """Corpora and methods down, shares of the training documents across."""
    shares = sorted(found["share"].unique())
    means = found.groupby(["corpus", "method", "share"])["accuracy"]
    names, methods = found["corpus"].unique(), found["method"].unique()
    groups = means.groups.keys()
    rows = [
        (f"{n}: {m}", [cell(means.get_group((n, m, s))) if (n, m, s) in groups else "" for s in shares])
        for n in names
        for m in methods
    ]
    gaps = found.pivot_table(index=["corpus", "seed"], columns=["method", "share"], values="accuracy")
    first = methods[0]
    for method in methods[1:]:
        gap = [
            (gaps[method, s] - gaps[first, s]).groupby("corpus").mean() if (method, s) in gaps else () for s in shares
        ]
        rows.append((f"{method} minus {first}, mean of corpora", [cell(part, "+.3f") for part in gap]))
        rows.append(
            (f"{method} minus {first}, worst corpus", [f"{min(part):+.3f}" if len(part) else "" for part in gap])
        )
    return table_of("accuracy", [f"{share:.0%}" for share in shares], rows)


def main() -> None:
    options = asked(
        __doc__, data="../shared/data", methods=METHODS, corpora=NAMES, shares=(0.05, 0.2, 1.0), seeds=range(3)
    )
    if shown(options, __file__, PACKAGES, table, "classes by default arguments", "draws of documents"):
        return
    results = Results(options.into, ("corpus", "method", "share", "seed"))
    for seed in options.seeds:
        for name in options.corpora:
            for share in options.shares:
                for method in options.methods:
                    place = name, method, share, seed
                    results.part(place, partial(part, method, options.data, name, share, seed))


if __name__ == "__main__":
    main()
