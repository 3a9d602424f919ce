"""How far a Gibbs iteration goes on a host: tokens a second and memory, in memory, in shards, by several processes.

    python benchmarks/processes.py --tokens 1e6,1e7,1e8 --ways memory,shards,processes [--iterations 4] [--write]
    python benchmarks/processes.py --data FOLDER --topics 50 --thinning 10 --ways memory,processes

`memory` is one process, `shards` the same with the tokens in files, `processes` two processes of one core each against the
one with two, `both` two processes with shards, `four` four. Whole iterations of LDA from random topics, one chain, after
the first; by C++ where that is built. Documents have 100 tokens, terms by Zipf's law; or they are those of a folder with
counts.npz and ratings (speed.py), and normal sLDA is fitted. With --thinning every so many draws are kept. Draws of all
ways must be the same. Seconds of processors are those of all processes together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import circumstances, show, table_of
from speed import load

LENGTH = 100  # tokens of a document
PACKAGES = ("jax", "jaxlib", "numpyro")


def make(tokens, terms, folder):
    """A corpus in files, made a part at a time, so that the process that reads it has not held more."""
    rng, weights = np.random.default_rng(0), 1 / (np.arange(terms) + 10.0)
    upper, documents = np.cumsum(weights / weights.sum()), tokens // LENGTH
    lengths, indices, data = [], [], []
    for first in range(0, documents, 20_000):
        number = min(20_000, documents - first)
        drawn = np.minimum(np.searchsorted(upper, rng.random((number, LENGTH))), terms - 1)
        pairs, counts = np.unique(drawn + np.arange(number)[:, None] * terms, return_counts=True)
        lengths.append(np.bincount(pairs // terms, minlength=number))
        indices.append((pairs % terms).astype(np.int32))
        data.append(counts.astype(np.int32))
    ends = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int32)
    for name, array in (("indptr", ends), ("indices", np.concatenate(indices)), ("data", np.concatenate(data))):
        np.save(folder / f"{name}.npy", array)


def from_files(options):
    import pandas as pd
    from scipy import sparse

    from topiczoo.corpora import Corpus

    data, indices, indptr = (np.load(options.folder / f"{name}.npy") for name in ("data", "indices", "indptr"))
    matrix = sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, options.terms))
    words = np.arange(options.terms).astype(str).astype(object)
    names = np.arange(matrix.shape[0]).astype(str).astype(object)
    return Corpus(matrix, words, names, np.arange(len(names)), pd.DataFrame(index=names))


def rated(folder):
    from topiczoo.corpora import Corpus

    counts, vocabulary, rating = load(folder)
    return Corpus.from_counts(counts, vocabulary), "slda", [(rating - rating.mean()) / rating.std()]


def one(options):
    """One process: the seconds of each iteration, what it took in all, and what was drawn."""
    from topiczoo import distributed

    if options.number > 1:
        distributed.initialize(f"127.0.0.1:{options.port}", options.number, options.process)
    from topiczoo import inference
    from topiczoo.inference.mcmc.chains import Chains

    corpus, story, y = rated(options.data) if options.data else (from_files(options), "lda", [])
    taken, plain = [], Chains.advance

    def timed(self, steps):
        before = time.perf_counter(), time.process_time()
        found = plain(self, steps)
        taken.append(((time.perf_counter() - before[0]) / steps, (time.process_time() - before[1]) / steps))
        return found

    Chains.advance = timed
    more = {"shards": options.folder / "shards"} if options.way == "shards" else {}
    fit = inference.gibbs(
        story, corpus, *y, num_topics=options.topics, num_warmup=0, num_samples=options.iterations * options.thinning,
        thinning=options.thinning, num_chains=1, start="random", keep=[], progress_bar=False, **more,
    )  # fmt: skip
    # of counts and topics: log joint densities are added up in other orders in memory and in shards
    digest = hashlib.sha256(np.ascontiguousarray(fit.statistics["usage"]).tobytes())
    digest.update(np.ascontiguousarray(fit.means["beta"] if "beta" in fit.means else fit.draws["beta"]).tobytes())
    print(
        json.dumps(
            {
                "wall": statistics.median(wall for wall, _ in taken[1:]),
                "cpu": statistics.median(cpu for _, cpu in taken[1:]),
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
                "sweep": fit.info["sweep"],
                "drawn": digest.hexdigest()[:12],
            }
        )
    )


def run(way, number, options, folder):
    """Processes, each with its share of two cores, and what they found together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--way", way, "--number", number, "--port", port, "--folder", folder, "--topics", options.topics]
    flags += ["--terms", options.terms, "--iterations", options.iterations, "--thinning", options.thinning]
    flags += ["--data", options.data] if options.data else []
    cores = sorted(os.sched_getaffinity(0))
    started = []
    for process in range(number):
        own = cores if number == 1 else [cores[process % len(cores)]]
        command = [sys.executable, __file__, "--process", str(process), *map(str, flags)]
        started.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda own=own: os.sched_setaffinity(0, own)
            )
        )
    said = [process.communicate()[0] for process in started]
    found = [json.loads(text.strip().splitlines()[-1]) for text in said]
    assert len({part["drawn"] for part in found}) == 1
    whole = {"cpu": sum(part["cpu"] for part in found), "peak": max(part["peak"] for part in found)}
    return found[0] | whole | {"wall": max(part["wall"] for part in found)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1e6,1e7,1e8")
    parser.add_argument("--ways", default="memory,shards,processes")
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--terms", type=int, default=50_000)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--thinning", type=int, default=1)
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=1, help="how often all ways are run in turn")
    parser.add_argument("--write", action="store_true")
    for name, kind in (("process", int), ("number", int), ("port", int), ("way", str), ("folder", Path)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        return one(options)
    ways = {"memory": ("memory", 1), "processes": ("memory", 2)}
    ways |= {"shards": ("shards", 1), "both": ("shards", 2), "four": ("shards", 4)}
    rows = []
    sizes = [int(load(options.data)[0].sum())] if options.data else map(int, map(float, options.tokens.split(",")))
    for tokens in sizes:
        folder = Path(tempfile.mkdtemp())
        try:
            if not options.data:
                make(tokens, options.terms, folder)
            found: dict[str, list] = {}
            for _ in range(options.rounds):
                for way in options.ways.split(","):
                    found.setdefault(way, []).append(run(*ways[way], options, folder))
                    print(tokens, way, found[way][-1], flush=True)
        finally:
            shutil.rmtree(folder)
        for way, several in found.items():
            best = {name: min(part[name] for part in several) for name in ("wall", "cpu", "peak")}
            cells = [f"{tokens / best['wall']:.2e}", f"{tokens / best['cpu']:.2e}", f"{best['peak']:.2f} GiB"]
            rows.append((f"{tokens:.0e}, {way}", [*cells, several[0]["drawn"]]))
    heads = ["tokens a second", "tokens a second of a processor", "peak memory", "digest of the draws"]
    text = f"`python benchmarks/processes.py`, {circumstances(__file__, PACKAGES)}\n\n"
    show(text + table_of("tokens", heads, rows), "Several processes, and shards beyond memory", options.write)


if __name__ == "__main__":
    main()
