"""How long a report of a large fit takes, and how large it is.

    python benchmarks/report.py --topics 200 --terms 50000 --documents 10000 --into report.html

The fit is made of numbers, as gibbs would store it (topics at three draws a chain, proportions as means); documents have 150
words and their texts. Seconds are those of ``diagnostics.report`` alone, by the clock and of the processor, with what was
compiled before (in the cache of JAX, if there is one) and what was not.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from topiczoo import diagnostics, models
from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.story.reader import bind
from topiczoo.inference.story.response import Response
from topiczoo.inference.story.tracing import Story

LENGTH, CHAINS, SNAPSHOTS, DRAWS = 150, 2, 3, 300


def corpus_of(beta: np.ndarray, theta: np.ndarray, rng: np.random.Generator) -> Corpus:
    """Words drawn from topics, with texts of them in a random order."""
    (num_topics, num_terms), number = beta.shape, len(theta)
    up_to = np.cumsum(beta, 1, dtype=float)
    topic = np.stack([rng.choice(num_topics, LENGTH, p=row / row.sum()) for row in theta.astype(float)])
    chance, term = rng.random(topic.shape), np.empty_like(topic)
    for k in range(num_topics):
        term[topic == k] = np.searchsorted(up_to[k] / up_to[k, -1], chance[topic == k]).clip(0, num_terms - 1)
    rows = np.repeat(np.arange(number), LENGTH)
    counts = sparse.csr_matrix((np.ones(term.size, int), (rows, term.ravel())), shape=(number, num_terms))
    vocabulary = np.array([f"word{v}" for v in range(num_terms)], object)
    made = Corpus.from_counts(counts, vocabulary)
    return made.with_texts([f"The {', a '.join(vocabulary[row])}." for row in term])


def made(story: str, num_topics: int, num_terms: int, number: int) -> Fit:
    """A fit whose draws lie around the truth."""
    rng = np.random.default_rng(0)
    often = rng.permutation(1 / (1 + np.arange(num_terms)) ** 0.7)
    beta = rng.gamma(0.02, size=(num_topics, num_terms)) * often + 1e-9
    beta = (beta / beta.sum(1, keepdims=True)).astype(np.float32)
    theta = (rng.dirichlet(np.full(num_topics, 0.05), number) + 1e-6).astype(np.float32)
    corpus, eta = corpus_of(beta, theta, rng), rng.normal(size=num_topics)
    parts, draws = {}, {}
    if story == "slda":
        parts = {"y": (theta @ eta + 0.3 * rng.normal(size=number)).astype(np.float32)}
        draws = {
            "eta": (eta + 0.1 * rng.normal(size=(CHAINS, DRAWS, num_topics))).astype(np.float32),
            "sigma": (0.3 + 0.01 * rng.normal(size=(CHAINS, DRAWS))).astype(np.float32),
        }
    snapshots = np.stack(
        [beta * rng.uniform(0.8, 1.2, beta.shape).astype(np.float32) for _ in range(CHAINS * SNAPSHOTS)]
    )
    snapshots = (snapshots / snapshots.sum(-1, keepdims=True)).reshape(CHAINS, SNAPSHOTS, *beta.shape)
    usage = theta.mean(0) * rng.uniform(0.97, 1.03, (CHAINS, DRAWS, num_topics))
    graph = bind(Story(getattr(models, story), {"num_topics": num_topics}), corpus, Response(parts))
    return Fit.of(
        graph, draws, engine="gibbs", info={"seed": 0, "num_warmup": 300, "as_means": ["beta", "theta"]},
        means={"theta": np.stack([theta] * CHAINS), "beta": snapshots.mean(1)}, snapshots={"beta": snapshots},
        snapshot_index=(np.arange(SNAPSHOTS) + 1) * (DRAWS // SNAPSHOTS) - 1,
        statistics={"usage": usage, "lp": rng.normal(size=(CHAINS, DRAWS)), "moved": np.full((CHAINS, DRAWS), 0.2)},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, value in (("topics", 200), ("terms", 50_000), ("documents", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--story", choices=("slda", "lda"), default="slda")
    parser.add_argument("--into", type=Path, default=Path("report.html"))
    given = parser.parse_args()
    fit = made(given.story, given.topics, given.terms, given.documents)
    clock, worked = time.perf_counter(), time.process_time()
    diagnostics.report(fit, given.into, progress_bar=False)
    clock, worked = time.perf_counter() - clock, time.process_time() - worked
    told = f"{given.story}, K={given.topics}, V={given.terms}, D={given.documents}"
    size = given.into.stat().st_size / 1e6
    print(
        f"{told}: {clock:.1f} s by the clock, {worked:.1f} s of the processor, {size:.2f} MB; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
