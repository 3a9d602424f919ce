"""Sparse additive topics on NIPS papers: perplexity over the number of topics (Eisenstein, Ahmed & Xing 2011, figures 3, 4).

    python benchmarks/additive_topics.py --into FILE                  # parts in FILE are not run again
    python benchmarks/additive_topics.py --methods sage,lda --topics 10,50 --seeds 0,1 --into FILE
    python benchmarks/additive_topics.py --from FILE [FILE ...] --write

The 10,000 terms of most papers, no stop words left out beyond those that the corpus comes without; of each paper a tenth of
its tokens, drawn without replacement; a fifth of the papers held out. A seed is a draw of tokens, a split and a start, the
same for all methods. The corpus is not part of the project (--data FOLDER); it has the papers of NIPS 1-12, the article's
has those of NIPS 1-17.

sage, laplace: topics that deviate from the background of the training papers, under the Jeffreys prior or a Laplace prior of
the story's scale, by variational EM. lda: LDA by variational EM, the precision gamma of its symmetric prior of topics at its
maximum likelihood: fits and the gamma that is best for their expected counts in turn, each from the same start, until gamma
moves by less than 2%. theta's prior is estimated everywhere. Perplexity is that of all tokens of the held-out papers, by the
Chib-style estimator at the mean topics, and left to right for comparison; both come out high where their error is large.
Zeros are deviations below 0.001. Variation of a term is the sum over topics of abs(deviation), for LDA of abs(log beta - its
mean over topics), as a share of all terms'; tenths of the terms go from those of fewest training tokens to those of most.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
from measuring import Results, asked, cell, shown, table_of
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

PACKAGES = ("topiczoo", "jax", "numpyro")
TERMS, SHARE, HELD_OUT = 10_000, 0.1, 0.2
VEM = {"num_iterations": 200, "tolerance": 2e-5, "num_draws": 1, "estimate_alpha": True, "progress_bar": False}
CHIB = {"num_sweeps": 200, "num_burn": 50, "repeats": 5}  # with 30 sweeps perplexities of 50 topics are 2% higher
GAMMA, ROUNDS, STILL = 0.05, 8, 0.02  # where LDA's gamma starts, fits for it at most, and a change that ends them
MOST_TOPICS = 50  # whose variation is looked at
PRIORS = {"sage": "jeffreys", "laplace": "laplace"}
METHODS = {"sage": "SAGE, Jeffreys", "laplace": "SAGE, Laplace", "lda": "LDA"}


def load(folder, seed):
    """Thinned training and test papers."""
    from topiczoo import corpora

    counts = sparse.load_npz(Path(folder) / "nips12" / "counts.npz").tocsr().astype(int)
    spread = np.asarray((counts > 0).sum(0)).ravel()
    counts = counts[:, np.sort(np.argsort(-spread, kind="stable")[:TERMS])]
    rng = np.random.default_rng(seed)
    for begin, end in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
        own = counts.data[begin:end]
        kept = round(SHARE * own.sum())
        counts.data[begin:end] = rng.multivariate_hypergeometric(own, kept, method="marginals")
    counts.eliminate_zeros()
    corpus = corpora.Corpus.from_counts(counts, empty="keep")
    order = rng.permutation(np.flatnonzero(corpus.lengths > 0))
    size = round(HELD_OUT * len(order))
    return corpus[np.sort(order[size:])], corpus[np.sort(order[:size])]


def sage(train, prior, topics, seed):
    """The fit, and the variation [topics, terms] of its topics."""
    from topiczoo import inference, models

    story = {"background": models.background(train), "num_topics": topics, "prior": prior}
    fit = inference.vem(models.sage_topics, train, seed=seed, **VEM, **story)
    deviation = fit.means["deviation"][0]
    return fit, deviation, {"zeros": models.share_of_zeros(deviation)}


def lda(train, topics, seed):
    from topiczoo import inference, models

    tried = [GAMMA]
    while True:
        fit = inference.vem(models.lda, train, seed=seed, num_topics=topics, gamma=tried[-1], **VEM)
        best = fitted_gamma(expected_counts(fit, train, tried[-1]))
        if abs(best / tried[-1] - 1) < STILL or len(tried) == ROUNDS:
            break
        tried.append(best)
    log_beta = np.log(fit.topic_terms(0))
    return fit, log_beta - log_beta.mean(0), {"gamma": tried[-1], "gammas": [*tried, best]}


def expected_counts(fit, train, gamma):
    """Expected counts [topics, terms] of a fit's topics, from their means: topic k has sum_d N_d E[zbar_dk] tokens."""
    alpha = np.asarray(fit.info["alpha"], float)
    tokens = (fit.means["theta"][0] * (alpha.sum() + train.lengths)[:, None] - alpha).sum(0)
    total = tokens + gamma * train.num_terms
    return np.maximum(fit.means["beta"][0] * total[:, None] - gamma, 0.0)


def fitted_gamma(counts):
    """The gamma of most probable counts, sum_k log p(counts_k | Dir(gamma, ..., gamma)): the bound at the best topics."""
    present, totals, (topics, terms) = counts[counts > 0], counts.sum(1), counts.shape

    def loss(log_gamma):
        gamma = np.exp(log_gamma)
        within = (gammaln(present + gamma) - gammaln(gamma)).sum()
        return -within - topics * gammaln(terms * gamma) + gammaln(totals + terms * gamma).sum()

    return float(np.exp(minimize_scalar(loss, bounds=np.log([1e-5, 10.0]), method="bounded").x))


def part(method, folder, topics, seed):
    from topiczoo.diagnostics.scoring.evidence import chib, left_to_right
    from topiczoo.diagnostics.scoring.held_out import HeldOut

    train, test = load(folder, seed)
    began = time.perf_counter()
    fit, away, more = lda(train, topics, seed) if method == "lda" else sage(train, PRIORS[method], topics, seed)
    trained = time.perf_counter()
    topics_of_fit = fit.topic_terms(0), fit.info["alpha"], test
    found, read = (
        HeldOut(name, test.names, test.lengths, evidence.repeats[None])
        for name, evidence in (
            ("chib", chib(*topics_of_fit, seed=seed, **CHIB)),
            ("left_to_right", left_to_right(*topics_of_fit, seed=seed)),
        )
    )
    row = {
        "perplexity": found.perplexity, "error": found.perplexity_error, "read": read.perplexity,
        "read error": read.perplexity_error, "training": trained - began, "test": time.perf_counter() - trained,
        "bound": fit.info["bound"][-1], "converged": fit.info["converged"],
        "iterations": len(fit.info["bound"]) - 1, "warning": fit.info.get("warning"),
        "alpha": float(fit.info["alpha"].sum()), "papers": [len(train), len(test)],
        "tokens": [int(train.lengths.sum()), int(test.lengths.sum())], **more,
    }  # fmt: skip
    return row | ({"variation": by_frequency(away, train)} if topics == MOST_TOPICS else {})


def by_frequency(away, train):
    """Shares of all variation in tenths of the terms, from rare to frequent."""
    order = np.argsort(np.asarray(train.counts.sum(0)).ravel(), kind="stable")
    sums = np.array([np.abs(away[:, tenth]).sum() for tenth in np.array_split(order, 10)], float)
    return (sums / sums.sum()).tolist()


def table(found):
    """Methods down, numbers of topics across; then variation by frequency."""
    topics = sorted(found["topics"].unique())

    def of(method, number, column):
        own = found[(found["method"] == method) & (found["topics"] == number)]
        return own.set_index("seed").get(column, own["seed"][:0])

    def part(column, form, title, more=()):
        rows = [(name, [cell(of(m, k, column), form) for k in topics]) for m, name in METHODS.items()]
        return table_of(title, [f"K = {k}" for k in topics], [*rows, *more])

    def wins(method):
        pairs = [(of(method, k, "perplexity") - of("lda", k, "perplexity")).dropna() for k in topics]
        return [f"{(pair < 0).sum()} of {len(pair)}" if len(pair) else "" for pair in pairs]

    better = [(f"seeds in which {METHODS[method]} beats LDA", wins(method)) for method in PRIORS]
    columns = (
        ("error", ".1f", "Monte Carlo error of a perplexity"), ("read", ".1f", "perplexity, left to right"),
        ("read error", ".1f", "Monte Carlo error of a perplexity, left to right"), ("zeros", ".4f", "share of zeros"),
        ("gamma", ".4f", "precision of the topics' prior"), ("alpha", ".2f", "sum of alpha"),
        ("bound", ".0f", "bound"), ("iterations", ".0f", "iterations of the last fit"),
        ("training", ".0f", "training, seconds"), ("test", ".0f", "test papers by both estimators, seconds"),
    )  # fmt: skip
    tables = [part("perplexity", ".1f", "perplexity", better), *(part(*column) for column in columns)]
    rows = []
    for method, name in METHODS.items():
        shares = of(method, MOST_TOPICS, "variation").dropna()
        rows.append((name, [f"{share:.3f}" for share in np.mean(shares.tolist(), axis=0)] if len(shares) else []))
    title = f"variation, tenths of the terms from rare to frequent, K = {MOST_TOPICS}"
    return "\n\n".join([*tables, table_of(title, [str(i) for i in range(1, 11)], rows)])


def main() -> None:
    choices = {"topics": (10, 25, 50), "seeds": range(5)}
    arguments = asked(__doc__, data="../shared/data", methods=tuple(METHODS), **choices)
    if shown(arguments, __file__, PACKAGES, table, "Sparse additive topics, NIPS papers", "seeds"):
        return
    results = Results(arguments.into, ("method", "topics", "seed"))
    for seed, topics, method in itertools.product(arguments.seeds, arguments.topics, arguments.methods):
        task = method, arguments.data, topics, seed
        results.part((method, topics, seed), lambda task=task: part(*task))


if __name__ == "__main__":
    main()
