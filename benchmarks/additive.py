"""Sparse additive classes on newsgroups: accuracy over training posts (Eisenstein, Ahmed & Xing 2011, figure 2).

    python benchmarks/additive.py --into FILE                          # parts in FILE are not run again
    python benchmarks/additive.py --methods jeffreys,dirichlet --shares 0.05,1 --seeds 0,1 --into FILE
    python benchmarks/additive.py --from FILE [FILE ...] --write

The paper's split into training and test posts, the 50,000 terms of most training posts, no stop words left out; a seed is a
random subsample of the training posts (all of them: one run). The corpus is not part of the project (--data FOLDER).

jeffreys, laplace: naive Bayes with sparse deviations from the background of the subsample, by variational EM; the scale of
"laplace" is chosen by five-fold cross-validation in the subsample, that of "laplace 3" is the story's own. dirichlet:
Dirichlet-multinomial naive Bayes, the precision of its symmetric prior fitted by Minka's fixed point. svm: a linear machine
on tf-idf, its strength chosen by five-fold cross-validation in the subsample, for what words can tell at all. "laplace 3
all posts" and "dirichlet all posts" read the other training posts as well, without their groups: the former by variational
EM with labels that are latent there, the latter by EM (Nigam et al. 2000), its precision fitted in every turn. Classes have
equal prior probabilities in the latter; SAGE learns their shares. Zeros are deviations below 0.001.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Results, asked, cell, largest_fall, shown, table_of
from responses import linear_svm, tf_idf
from scipy import sparse
from scipy.special import digamma, softmax

PACKAGES = ("topiczoo", "jax", "numpyro")
TERMS = 50_000
SCALES = (0.3, 1.0, 3.0, 10.0)
EM_TURNS = 15
METHODS = {
    "jeffreys": "SAGE, Jeffreys", "laplace": "SAGE, Laplace", "laplace 3": "SAGE, Laplace, scale 3",
    "dirichlet": "Dirichlet-multinomial", "svm": "linear SVM, tf-idf",
    "laplace 3 all posts": "SAGE, Laplace, scale 3, other posts without groups",
    "dirichlet all posts": "Dirichlet-multinomial, other posts without groups",
}  # fmt: skip


def load(folder):
    """Corpus, codes of the groups, and the places of training and test posts with words."""
    from topiczoo import corpora

    folder = Path(folder) / "newsgroups20"
    counts, table = sparse.load_npz(folder / "counts.npz").tocsr(), pd.read_csv(folder / "documents.csv")
    train = (table["split"] == "train").to_numpy()
    spread = np.asarray((counts[train] > 0).sum(0)).ravel()
    used = np.sort(np.argsort(-spread, kind="stable")[:TERMS])
    corpus = corpora.Corpus.from_counts(counts[:, used], empty="keep")
    codes, words = np.unique(table["group"], return_inverse=True)[1], corpus.lengths > 0
    return corpus, codes, np.flatnonzero(train & words), np.flatnonzero(~train & words)


def sage(prior, corpus, codes, train, test, scale, unlabelled=()):
    """Accuracy, zeros and seconds of a fit."""
    from topiczoo import inference, models

    began = time.perf_counter()
    read = np.concatenate([train, unlabelled]).astype(int)
    label = np.where(np.arange(len(read)) < len(train), codes[read], np.nan)
    background = models.background(corpus[read])
    story = {"background": background, "outputs": int(codes.max()) + 1, "prior": prior, "scale": scale}
    fit = inference.vem(models.sage_nb, corpus[read], label, progress_bar=False, **story)
    trained = time.perf_counter()
    guess = fit.predict(corpus[test], rule="plug-in").probabilities.argmax(1)
    return {
        "accuracy": float(np.mean(guess == codes[test])), "zeros": models.share_of_zeros(fit.means["deviation"][0]),
        "training": trained - began, "test": time.perf_counter() - trained, "largest fall": largest_fall(fit),
    }  # fmt: skip


def zeros_of(fit):
    """The share of zeros of each facet's deviations."""
    from topiczoo import models

    facets = {
        name.removesuffix("_deviation"): value for name, value in fit.means.items() if name.endswith("_deviation")
    }
    return {f"zeros {name}": models.share_of_zeros(value) for name, value in facets.items()}


def dirichlet(corpus, codes, train, test, unlabelled=()):
    """log beta_c = log (counts_c + precision), normalised; the precision at its maximum likelihood."""
    began = time.perf_counter()
    owner = sparse.csr_matrix((np.ones(len(train)), (codes[train], np.arange(len(train)))))
    labelled = (owner @ corpus.counts[train]).toarray()
    others, counts = corpus.counts[np.asarray(unlabelled, int)], labelled
    for _ in range(EM_TURNS if len(unlabelled) else 1):
        precision = fitted_precision(counts)
        log_beta = np.log(counts + precision)
        log_beta -= np.log((counts + precision).sum(1, keepdims=True))
        counts = labelled + np.asarray(others.T @ softmax(np.asarray(others @ log_beta.T), axis=1)).T
    trained = time.perf_counter()
    guess = np.asarray(corpus.counts[test] @ log_beta.T).argmax(1)
    return {
        "accuracy": float(np.mean(guess == codes[test])), "precision": precision, "training": trained - began,
        "test": time.perf_counter() - trained,
    }  # fmt: skip


def fitted_precision(counts, precision=0.01):
    """Minka (2003), equation 55 for one number: the a that maximises sum_c log p(counts_c | Dir(a, ..., a))."""
    present, totals, num_terms = counts[counts > 0], counts.sum(1), counts.shape[1]
    for _ in range(1000):
        above = (digamma(present + precision) - digamma(precision)).sum()
        below = num_terms * (digamma(totals + num_terms * precision) - digamma(num_terms * precision)).sum()
        old, precision = precision, precision * above / below
        if abs(precision - old) < 1e-8 * old:
            break
    return float(precision)


def part(method, data, share, seed):
    corpus, codes, train, test = data
    order = np.random.default_rng(seed).permutation(train)[: round(share * len(train))]
    unlabelled = np.setdiff1d(train, order) if method.endswith("all posts") else ()
    if method.startswith("dirichlet"):
        return dirichlet(corpus, codes, order, test, unlabelled)
    if method == "svm":
        return {"accuracy": linear_svm(tf_idf(corpus.counts, order), codes, order, test)}
    scale = 3.0
    if method == "laplace":
        folds = [(np.setdiff1d(order, fold), fold) for fold in np.array_split(order, 5)]
        tried = [np.mean([sage(method, corpus, codes, *fold, scale)["accuracy"] for fold in folds]) for scale in SCALES]
        scale = SCALES[int(np.argmax(tried))]
    return {"scale": scale, **sage(method.split()[0], corpus, codes, order, test, scale, unlabelled)}


def table(found):
    """Methods down, shares of the training posts across."""
    shares = sorted(found["share"].unique())

    def part(column, form, title):
        rows = [
            (name, [cell(found.loc[(found["method"] == method) & (found["share"] == s), column], form) for s in shares])
            for method, name in METHODS.items()
        ]
        return table_of(title, [f"{share:.0%}" for share in shares], rows)

    columns = (
        ("accuracy", ".3f", "accuracy"), ("zeros", ".3f", "share of zeros"), ("training", ".1f", "training, seconds"),
        ("test", ".1f", "test posts, seconds"),
    )  # fmt: skip
    return "\n\n".join(part(*column) for column in columns)


def main() -> None:
    arguments = asked(
        __doc__, data="../shared/data", methods=tuple(METHODS), shares=(0.05, 0.1, 0.2, 0.5, 1.0), seeds=range(10)
    )
    if shown(arguments, __file__, PACKAGES, table, "Sparse additive classes, twenty newsgroups", "subsamples"):
        return
    data = load(arguments.data)
    results = Results(arguments.into, ("method", "share", "seed"))
    for share in arguments.shares:
        for seed in arguments.seeds if share < 1 else arguments.seeds[:1]:
            for method in arguments.methods:
                results.part((method, share, seed), lambda m=method, s=share, n=seed: part(m, data, s, n))


if __name__ == "__main__":
    main()
