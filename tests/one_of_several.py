"""One of several processes that make a run: ``python one_of_several.py PROCESS NUMBER PORT OUT OPTIONS`` (JSON)."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import numpy as np

from topiczoo import corpora, distributed, inference
from topiczoo.corpora import layouts
from topiczoo.inference.lasting import checkpoint
from topiczoo.inference.streams import shards

SETTINGS = {"num_topics": 3, "num_warmup": 2, "num_samples": 4, "num_chains": 1, "progress_bar": False}


def fit(story: str = "slda", **options: Any) -> inference.Fit:
    """The run that all of them make; ``layouts.LEAST_SHARED`` must be low for there to be several shards."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.5, (90, 30))
    counts[:, 0] += 1
    if "shards" not in options:
        counts[0] += 200  # a document that is laid out alone
    y = () if story == "lda" else (rng.normal(size=90),)
    return inference.gibbs(story, corpora.Corpus.from_counts(counts), *y, **SETTINGS | options)


def drawn(found: inference.Fit) -> dict[str, np.ndarray]:
    return {**found.draws, **found.statistics}


def main() -> None:
    process, number, port, out, told = sys.argv[1:]
    options = json.loads(told)
    distributed.initialize(f"127.0.0.1:{port}", int(number), int(process), initialization_timeout=60)
    layouts.LEAST_SHARED, layouts.LONG = 100, 1000
    shards.LEAST_SHARED, shards.TOKENS = 100, 150
    if options.pop("killed", False) and int(process):  # as soon as there is a checkpoint
        checkpoint.Checkpoint.look = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    checkpoint.EVERY, checkpoint.MOST = 0.0, np.inf
    if options.get("seed") == "own":
        options["seed"] = int(process)
    found = fit(**options)
    np.savez(f"{out}.{process}.npz", **drawn(found))


if __name__ == "__main__":
    main()
