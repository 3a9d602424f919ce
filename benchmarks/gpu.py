"""Tokens a second on a GPU: whole Gibbs iterations and sweeps alone, by story and number of topics.

    python benchmarks/gpu.py --data FOLDER                 # the film reviews, 40 copies: 66 million tokens
    python benchmarks/gpu.py --data FOLDER --only chains   # one copy, 8 chains of 600 sweeps, predictions of a fifth
    python benchmarks/gpu.py --only shards --tokens 1e8,1e9 --ways memory,shards

FOLDER holds counts.npz and documents.csv with a rating, as for speed.py. A machine without a GPU is told so. An iteration is
all of it: topics of words, beta, coefficients, scales, counts, log joint density. Compiling is timed apart. With `--only
shards`: LDA, 100 topics, 50,000 terms by Zipf's law, documents of 100 tokens, 100,000 of them again and again; tokens and
topics in the memory of the GPU or in that of the host.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy import sparse

from topiczoo import corpora, inference, models
from topiczoo.corpora.layouts import documents
from topiczoo.inference.gpu.choosing import sweep_tokens
from topiczoo.inference.mcmc import chains
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.sweeping import given
from topiczoo.inference.story.tracing import Data

ALPHA, GAMMA, CHUNK = 0.1, 0.05, 5
SIDES = {"outputs": 20}
# name: story, topics, arguments, response of standardised ratings
CASES = {
    "normal, K=50": ("slda", 50, {}, lambda y: y),
    "LDA, K=50": ("lda", 50, {}, None),
    "normal, K=200": ("slda", 200, {}, lambda y: y),
    "LDA, K=1000": ("lda", 1000, {}, None),
    "Poisson, K=50": ("slda_glm", 50, {"response": "poisson"}, lambda y: np.maximum(np.round(2 + y), 0)),
    "logit, K=50": ("slda_glm", 50, {"response": "logit"}, lambda y: y > 0),
    "Student-t, K=50": ("slda_glm", 50, {"response": "student_t"}, lambda y: y),
    "softmax of 20, K=50": ("slda_glm", 50, {"response": "softmax", **SIDES}, lambda y: twentieths(y)),
    "hinge, K=50": ("medlda", 50, {"margin": "binary"}, lambda y: y > 0),
    "hinge of 20 classes, K=50": ("medlda", 50, {"margin": "classes", **SIDES}, lambda y: twentieths(y)),
}


def twentieths(y: np.ndarray) -> np.ndarray:
    """Twenty classes of equal size by rank."""
    return np.argsort(np.argsort(y)) * 20 // len(y)


def load(folder: str, copies: int):
    counts = sparse.load_npz(Path(folder) / "counts.npz").tocsr()
    rating = pd.read_csv(Path(folder) / "documents.csv")["rating"].to_numpy()
    y = np.tile((rating - rating.mean()) / rating.std(), copies)
    return corpora.Corpus.from_counts(sparse.vstack([counts] * copies).tocsr()), y


def iterations(corpus, y, laid_out, case: str, chunks: int) -> dict:
    """Seconds an iteration and a sweep alone, of one chain."""
    story, num_topics, arguments, response = CASES[case]
    arguments = {"num_topics": num_topics, "alpha": ALPHA, "gamma": GAMMA, **arguments}
    graph = read(story, corpus, None if response is None else response(y), arguments)
    data = Data(laid_out, graph.response.on_device())
    plan = choose_blocks(graph, draw_theta=False)
    topics = plan.blocks[-1]
    schedule = chains.Schedule(
        CHUNK, CHUNK * chunks, chunk=CHUNK, unstored=["beta", "theta", "z"], statistics=plan.statistics
    )
    began = time.perf_counter()
    run = chains.Chains(plan.kernel(), jnp.stack([jax.random.key(0)]), data, schedule)
    run.states, *_ = run.advance(CHUNK)
    first, began = time.perf_counter() - began, time.perf_counter()
    for _ in range(chunks):
        run.states, *_ = run.advance(CHUNK)
    whole = (time.perf_counter() - began) / chunks / CHUNK
    values = jax.tree.map(lambda leaf: leaf[0], run.states[0].z) if run.together else run.states[0].z

    @jax.jit
    def sweep(key, values, data):
        told = given(key, graph, *data, values, topics.collapsed)
        z, batches = values["z"], data.documents.laid_out
        return sweep_tokens(topics.supervision, topics.collapsed, told, z, batches, by_kernel=not topics.no_kernel)

    jax.block_until_ready(sweep(jax.random.key(0), values, data))
    began = time.perf_counter()
    for i in range(CHUNK):
        swept = sweep(jax.random.key(i), values, data)
    jax.block_until_ready(swept)
    alone = (time.perf_counter() - began) / CHUNK
    return {
        "tokens a second, whole iterations": corpus.num_tokens / whole, "sweep alone": corpus.num_tokens / alone,
        "seconds to the first five": first, "by": topics.swept_by,
    }  # fmt: skip


def many_chains(corpus, y, start: str | None = None) -> dict:
    """8 chains of 600 sweeps on four fifths of the documents, and predictions of the rest."""
    order = np.random.default_rng(0).permutation(len(corpus))
    train, test = np.sort(order[len(order) // 5 :]), np.sort(order[: len(order) // 5])
    began = time.perf_counter()
    fit = inference.gibbs(
        models.slda, corpus[train], y[train], num_topics=50, alpha=ALPHA, gamma=GAMMA, num_chains=8,
        num_warmup=300, num_samples=300, start=start, progress_bar=False,
    )  # fmt: skip
    fitted, began = time.perf_counter() - began, time.perf_counter()
    mean = fit.predict(corpus[test]).mean
    predicted, began = time.perf_counter() - began, time.perf_counter()
    fit.predict(corpus[test])
    return {
        "seconds to fit": fitted, "to predict": predicted, "again": time.perf_counter() - began,
        "predictive R^2": float(1 - np.sum((y[test] - mean) ** 2) / np.sum((y[test] - y[test].mean()) ** 2)),
        "by": fit.info["sweep"],
    }  # fmt: skip


def repeated(tokens: int) -> corpora.Corpus:
    """100,000 documents of 100 tokens, as often as it takes."""
    rng, weights = np.random.default_rng(0), 1 / (np.arange(50_000) + 10.0)
    drawn = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random((100_000, 100))).clip(max=len(weights) - 1)
    pairs, counts = np.unique(drawn + np.arange(len(drawn))[:, None] * len(weights), return_counts=True)
    rows, terms = np.divmod(pairs, len(weights))
    one = sparse.csr_array((counts.astype(np.int32), (rows, terms.astype(np.int32))), (len(drawn), len(weights)))
    copies = tokens // int(one.data.sum())
    ends = (one.indptr[1:][None] + one.indptr[-1] * np.arange(copies)[:, None]).ravel()
    parts = np.tile(one.data, copies), np.tile(one.indices.astype(np.int32), copies), np.r_[0, ends].astype(np.int32)
    words, names = (np.arange(n).astype(str).astype(object) for n in (len(weights), len(ends)))
    matrix = sparse.csr_array(parts, (len(ends), len(weights)))
    return corpora.Corpus(matrix, words, names, np.arange(len(names)), pd.DataFrame(index=names))


def from_host(corpus: corpora.Corpus, way: str, draws: int) -> dict:
    """Seconds of whole iterations after the first three, tokens in memory or in shards."""
    taken, plain = [], chains.Chains.advance

    def timed(self, steps):
        began = time.perf_counter()
        found = plain(self, steps)
        taken.append((time.perf_counter() - began) / steps)
        return found

    chains.Chains.advance = timed
    try:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            fit = inference.gibbs(
                models.lda, corpus, num_topics=100, num_warmup=0, num_samples=draws, num_chains=1, start="random",
                keep=[], progress_bar=False, **({"shards": folder} if way == "shards" else {}),
            )  # fmt: skip
            whole = time.perf_counter() - began
    finally:
        chains.Chains.advance = plain
    beta = np.ascontiguousarray(fit.means.get("beta", fit.draws.get("beta")))
    return {
        "tokens": corpus.num_tokens, "way": way, "by": fit.info["sweep"], "seconds an iteration": taken, "whole": whole,
        "log joint": fit.statistics["lp"][0, [0, 1, -1]].tolist(),
        "drawn": hashlib.sha256(beta.tobytes()).hexdigest()[:12],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(Path(__file__).resolve().parents[2] / "shared/data/movie-reviews"))
    parser.add_argument("--copies", type=int, default=40, help="of the corpus, for the table of iterations")
    parser.add_argument("--chunks", type=int, default=4, help="of five iterations that are timed")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--only", choices=["iterations", "chains", "shards"])
    parser.add_argument("--tokens", default="1e8")
    parser.add_argument("--ways", default="memory,shards")
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        sys.exit(f"JAX has the backend {jax.default_backend()!r}; run this on a machine with a GPU.")
    print(jax.__version__, jax.devices()[0].device_kind, flush=True)
    if options.only == "shards":
        for tokens in options.tokens.split(","):
            corpus = repeated(int(float(tokens)))
            for way in options.ways.split(","):
                print(json.dumps(from_host(corpus, way, options.draws)), flush=True)
        return
    if options.only != "iterations":
        corpus, y = load(options.data, 1)
        for start in ("random", "merged"):
            print(json.dumps({"8 chains, start": start, **many_chains(corpus, y, start)}), flush=True)
    if options.only != "chains":
        corpus, y = load(options.data, options.copies)
        laid_out = documents(corpus, batches=True)
        print(json.dumps({"tokens": corpus.num_tokens}), flush=True)
        for case in options.cases:
            print(json.dumps({"case": case, **iterations(corpus, y, laid_out, case, options.chunks)}), flush=True)


if __name__ == "__main__":
    main()
