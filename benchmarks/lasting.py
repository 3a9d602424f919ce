"""Runs killed at random moments and taken up again, and what checkpoints cost.

    python benchmarks/lasting.py --kills 20
    python benchmarks/lasting.py --cost

Kills: every engine fits supervised LDA to some of the reviews that come with the package, with a checkpoint ten times a
second. A process of its own is killed (SIGKILL) at a random moment of the run, up to a tenth of a second after one of the
moments at which it may write, compiling behind it; this process goes on from what is in its folder, and every array of the
fit is compared with those of a run without a break, bit for bit.

Cost: the seconds that writing takes, on a corpus of 600,000 words, 50 topics and 5,000 terms, by the clock and of the
processor. A checkpoint is written once a minute, or less often where it takes longer than a hundredth of the time.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from topiczoo import corpora, inference
from topiczoo.inference.lasting import checkpoint
from topiczoo.inference.marginal import nuts_engine
from topiczoo.inference.mcmc import engine

OFTEN = 0.1  # seconds between two checkpoints
RUNS = {
    "gibbs": {"num_warmup": 100, "num_samples": 300},
    "vem": {"num_iterations": 40, "tolerance": 0.0},
    "svi": {"num_steps": 600, "num_draws": 50, "batch_size": 16},
    "nuts": {"num_warmup": 40, "num_samples": 40, "max_tree_depth": 4},
}


def fit(name, folder=None):
    """A fit by an engine, in chunks small enough to be cut."""
    engine.CHUNK_TOKENS, nuts_engine.CHUNK = 20_000, 4
    checkpoint.EVERY, checkpoint.MOST = OFTEN, 1e9
    corpus, y = corpora.load_reviews(num_documents=60)
    settings = {"num_topics": 4, "progress_bar": False, **RUNS[name]}
    return getattr(inference, name)("slda", corpus, (y - y.mean()) / y.std(), checkpoint=folder, **settings)


def at_looks(told):
    """Have every moment at which a run may write a checkpoint told by its number, from 1 on."""
    right, number = checkpoint.Checkpoint.look, [0]

    def look(self, tell, *, last=False):
        number[0] += 1
        told(number[0])
        right(self, tell, last=last)

    checkpoint.Checkpoint.look = look
    return lambda: setattr(checkpoint.Checkpoint, "look", right)


def child(name, folder, moment):
    """The run that will be killed; it says when that moment has come."""
    at_looks(lambda number: print("now", flush=True) if number == int(moment) else None)
    fit(name, folder)
    print("ended", flush=True)


def same(one, two):
    """Whether every array of two fits is the same, bit for bit."""
    for group in ("draws", "means", "statistics", "snapshots"):
        first, second = getattr(one, group), getattr(two, group)
        if first.keys() != second.keys() or any(first[n].tobytes() != second[n].tobytes() for n in first):
            return False
    return all(np.array_equal(one.info.get(name, 0), two.info.get(name, 0)) for name in ("bound", "losses"))


def kills(names, number, seed):
    rng = random.Random(seed)
    for name in names:
        whole = fit(name)
        with tempfile.TemporaryDirectory() as folder:
            moments: list[int] = []
            undo = at_looks(moments.append)
            assert same(fit(name, Path(folder) / "run"), whole)
            undo()
        alike, written, ended = 0, [], 0
        for _ in range(number):
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder) / "run"
                moment = rng.choice(moments[:-1])
                command = [sys.executable, __file__, "--child", name, str(place), str(moment)]
                with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                    assert process.stdout is not None and process.stdout.readline() == b"now\n"
                    time.sleep(rng.uniform(0, OFTEN))
                    process.send_signal(signal.SIGKILL)
                    ended += b"ended" in process.stdout.read()
                written.append(checkpoint.states(place)[:1])
                alike += same(fit(name, place), whole)
                print(f"{name}: {alike} of {len(written)} the same", file=sys.stderr, flush=True)
        numbers = [number[0] if number else 0 for number in written]
        print(
            f"| {name} | {alike} of {number} | {len(moments)} | {min(numbers)} to {max(numbers)} | {ended} |",
            flush=True,
        )


def cost():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(5000, 0.05), 50)
    shares = rng.dirichlet(np.full(50, 0.1), 2000)
    corpus = corpora.Corpus.from_counts(np.stack([rng.multinomial(300, share @ topics) for share in shares]))
    y = shares @ rng.normal(size=50)
    told, right = [], checkpoint.Checkpoint._write

    def write(self, *arguments):
        began = time.perf_counter(), time.process_time()
        right(self, *arguments)
        told.append((time.perf_counter() - began[0], time.process_time() - began[1]))

    checkpoint.Checkpoint._write, checkpoint.EVERY, checkpoint.MOST = write, 0.0, 1e9
    settings = {"num_topics": 50, "progress_bar": False}
    runs = {
        "gibbs": {"num_warmup": 1, "num_samples": 3, "start": "random"},
        "vem": {"num_iterations": 3},
        "svi": {"num_steps": 4, "batch_size": 500, "num_draws": 10},
    }
    for name, own in runs.items():
        told.clear()
        with tempfile.TemporaryDirectory() as folder:
            getattr(inference, name)("slda", corpus, y, checkpoint=Path(folder) / "run", **settings, **own)
            size = sum(path.stat().st_size for path in (Path(folder) / "run").glob("state-*")) / checkpoint.KEPT
        wall, cpu = np.median(told, 0)
        print(f"| {name} | {size / 1e6:.0f} | {wall:.2f} | {cpu:.2f} | {cpu / 60:.2%} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=0, help="random moments for each engine")
    parser.add_argument("--engines", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("ENGINE", "FOLDER", "MOMENT"))
    options = parser.parse_args()
    if options.child:
        child(*options.child)
    if options.kills:
        print("| engine | the same | moments | checkpoints when killed | not killed in time |\n|---|---|---|---|---|")
        kills(options.engines, options.kills, options.seed)
    if options.cost:
        print("| engine | MB | seconds | of the processor | share of a minute |\n|---|---|---|---|---|")
        cost()


if __name__ == "__main__":
    main()
