"""Documents beyond memory: online variational EM against scikit-learn's, and memory by the number of documents.

    python benchmarks/streams.py peers DATA/newsgroups20/counts.npz   CPU time and held-out perplexity, interleaved
    python benchmarks/streams.py memory 1000000 online                largest resident memory on simulated short documents
    python benchmarks/streams.py memory 1000000 svi

Held-out perplexity is by document completion: half of the words of a held-out document, taken at random, give its
proportions, by the same fold-in for both; the other half is scored.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse

from topiczoo import corpora, inference, models
from topiczoo.corpora.layouts import documents
from topiczoo.inference.em.engine import fold_in

TOPICS = 50


def completion(beta: np.ndarray, counts: sparse.csr_array, seed: int = 1) -> float:
    """Perplexity of half of the words given the other half."""
    whole = counts.tocoo()
    seen = np.random.default_rng(seed).binomial(whole.data, 0.5)
    at = whole.row, whole.col
    given = corpora.Corpus.from_counts(sparse.coo_array((seen, at), shape=counts.shape), empty="keep")
    gamma, _ = fold_in(np.asarray(beta, np.float32), 1 / TOPICS, documents(given, pairs=True))
    theta, rest = np.asarray(gamma / gamma.sum(1, keepdims=True), np.float64), whole.data - seen
    log_p = np.log((theta[whole.row] * beta.T[whole.col]).sum(1))
    return float(np.exp(-(rest * log_p).sum() / rest.sum()))


def peers(path: str, passes: int, batch_size: int, rounds: int) -> None:
    from sklearn.decomposition import LatentDirichletAllocation

    counts = sparse.csr_array(sparse.load_npz(path))
    counts = counts[np.flatnonzero(counts.sum(1))]
    order = np.random.default_rng(0).permutation(counts.shape[0])
    test, train = counts[order[:1000]], counts[order[1000:]]
    corpus = corpora.Corpus.from_counts(train)

    def ours(seed: int) -> np.ndarray:
        fit = inference.online(
            models.lda, corpus, num_topics=TOPICS, alpha=1 / TOPICS, gamma=1 / TOPICS, passes=passes,
            batch_size=batch_size, seed=seed, num_draws=1, progress_bar=False,
        )  # fmt: skip
        return fit.mean("beta").astype(np.float64)

    def theirs(seed: int) -> np.ndarray:
        fit = LatentDirichletAllocation(
            TOPICS, learning_method="online", max_iter=passes, batch_size=batch_size, random_state=seed
        ).fit(train)
        return fit.components_ / fit.components_.sum(1, keepdims=True)

    for seed in range(rounds):
        for name, fit in (("topiczoo", ours), ("scikit-learn", theirs)):
            cpu, wall = time.process_time(), time.perf_counter()
            beta = fit(seed)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            print(
                f"{name:13} seed {seed}: {cpu:6.1f} CPU s, {wall:6.1f} s, perplexity {completion(beta, test):.1f}",
                flush=True,
            )


def write(folder: Path, number: int, num_terms: int = 5000, topics: int = 20, each: int = 100_000) -> None:
    """Simulated documents of some ten words with a response, a file for every hundred thousand."""
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    beta = rng.dirichlet(np.full(num_terms, 0.05), topics).cumsum(1)
    eta = rng.normal(size=topics)
    for first in range(0, number, each):
        size = min(each, number - first)
        theta = rng.dirichlet(np.full(topics, 0.2), size)
        lengths = rng.poisson(9, size) + 1
        document = np.repeat(np.arange(size), lengths)
        topic = (rng.random(len(document))[:, None] > theta.cumsum(1)[document]).sum(1)
        terms = np.empty(len(document), np.int32)
        for k in range(topics):
            terms[topic == k] = np.searchsorted(beta[k], rng.random((topic == k).sum()))
        offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
        lists = pyarrow.ListArray.from_arrays(offsets, np.minimum(terms, num_terms - 1))
        table = {"words": lists, "y": theta @ eta + rng.normal(0, 0.3, size)}
        parquet.write_table(pyarrow.table(table), folder / f"{first // each:04d}.parquet", row_group_size=10_000)


def memory(number: int, engine: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), number)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        stream = corpora.stream(folder, terms="words", vocabulary=5000, y="y", batch_size=2048)
        cpu, wall = time.process_time(), time.perf_counter()
        if engine == "online":
            inference.online(models.slda, stream, num_topics=20, num_draws=20, progress_bar=False)
        else:
            steps = stream.num_batches
            inference.svi(models.slda, stream, num_topics=20, num_steps=steps, guide="amortised", num_draws=20,
                          progress_bar=False)  # fmt: skip
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        took = f"{time.process_time() - cpu:.0f} CPU s, {time.perf_counter() - wall:.0f} s"
        print(f"{engine}, {number} documents: {most:.2f} GiB at the most ({before:.2f} before), {took}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("peers", "memory"))
    parser.add_argument("given")
    parser.add_argument("engine", nargs="?", choices=("online", "svi"), default="online")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "corpus holds document")
    if options.what == "peers":
        peers(options.given, options.passes, options.batch_size, options.rounds)
    else:
        memory(int(options.given), options.engine)
