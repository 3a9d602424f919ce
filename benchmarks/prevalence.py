"""What topics are about by covariates of documents: 13,000 documents, 20 topics, 3 covariates, by models.stm.

    python benchmarks/prevalence.py [--compiled] [--write]

The shape of the example that R's stm comes with: 13,000 posts over 2,632 terms, with three covariates. Documents are
simulated from the story of models.stm, so that the effects are known. Printed: seconds to the end of the fit, compiling in
them; of each chain the correlation of the effects' posterior means with the truth, and the share of true effects inside
90% intervals, topics matched by their words. An effect counts less its mean over topics, which is all that words tell.
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path

import numpy as np
from measuring import circumstances, matched, parsed, show, table_of

from topiczoo import inference, models
from topiczoo.corpora import Corpus

HERE = Path(__file__).resolve().parent
TITLE = "topics by covariates of documents"
COVARIATES = ["side", "time", "blog"]


def simulated(
    documents: int, terms: int, topics: int, length: int, seed: int = 0
) -> tuple[Corpus, np.ndarray, np.ndarray]:
    """A corpus, its topics [topics, terms] and effects [covariates, topics]."""
    rng = np.random.default_rng(seed)
    common = rng.dirichlet(np.full(terms, 0.5))
    beta = rng.dirichlet(0.1 * terms * common + 1e-3, topics)
    x = np.stack([rng.choice([-1.0, 1.0], documents), rng.uniform(-1.7, 1.7, documents), rng.normal(size=documents)], 1)
    effect = rng.normal(0, 0.5, (3, topics))
    logits = rng.normal(0, 0.5, topics) + x @ effect + rng.normal(0, 2.0, (documents, topics))
    theta = np.exp(logits)
    theta /= theta.sum(1, keepdims=True)
    size = rng.poisson(length, documents)
    counts = np.stack([rng.multinomial(n, share @ beta) for n, share in zip(size, theta, strict=True)]).astype(np.int32)
    return Corpus.from_counts(counts, covariates=dict(zip(COVARIATES, x.T, strict=True))), beta, effect


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=13_000)
    parser.add_argument("--terms", type=int, default=2_632)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    told = parsed(parser)
    corpus, beta, effect = simulated(told.documents, told.terms, told.topics, told.length)
    run = {"num_warmup": told.warmup, "num_samples": told.draws, "num_chains": told.chains, "progress_bar": False}
    began, used = time.perf_counter(), time.process_time()
    fit = inference.gibbs(models.stm, corpus, prevalence=COVARIATES, num_topics=told.topics, **run)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    truth = effect - effect.mean(1, keepdims=True)
    rows = []
    for chain in range(told.chains):
        own, likeness = matched(beta, np.asarray(fit.mean("beta", chain=chain), float))
        draws = np.asarray(fit.draws["effect"][chain], float)[..., own]
        draws -= draws.mean(-1, keepdims=True)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        rows.append((
            f"chain {chain}",
            [f"{likeness.min():.3f}",
             f"{np.corrcoef(draws.mean(0).ravel(), truth.ravel())[0, 1]:.4f}",
             f"{np.mean((low <= truth) & (truth <= high)):.2f}"],
        ))  # fmt: skip
    table = table_of("", ("least cosine of a topic with its own", "correlation of effects", "inside 90%"), rows)
    made_by = f"{circumstances(__file__, ('topiczoo', 'jax', 'numpyro'))} {datetime.date.today()}."
    text = (
        f"{made_by} {corpus!r}, {told.topics} topics: "
        f"{seconds:.0f} s, {used:.0f} CPU s, {told.chains} chains of {told.warmup} + {told.draws} sweeps.\n\n{table}"
    )
    show(text, TITLE, told.write)


if __name__ == "__main__":
    main()
