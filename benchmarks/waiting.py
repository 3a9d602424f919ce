"""How long a user waits beside the sampling itself: imports, the first draw of a small fit, a prediction of one document.

    .venv/bin/python benchmarks/speed.py --only waiting

A normal supervised LDA with 10 topics on a thousand of the reviews that come with the package, two chains of one warm-up
iteration and one draw. Every row of the first two columns is a process of its own with a folder of its own for compiled
programs, which is empty first (cold) and then holds what the first process has left (warm). Programs are counted as
JAX reports them: compiled, or read from the disk.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time

from measuring import run_part, table_of

DOCUMENTS, TOPICS = 1000, 10
COMPILED = "/jax/core/compile/backend_compile_duration"


class Watch:
    """Wall and CPU seconds of what runs within, and the programs that are compiled or read from the disk."""

    programs = 0

    def __enter__(self):
        self.before = self._now()
        return self

    def __exit__(self, *_):
        wall, cpu, programs = (after - before for after, before in zip(self._now(), self.before, strict=True))
        self.told = {"seconds": wall, "CPU seconds": cpu, "programs": programs}

    @staticmethod
    def _now():
        used = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), used.ru_utime + used.ru_stime, Watch.programs


def part():
    """All that is measured in one process."""
    told = {}

    def timed(name, work):
        with Watch() as watch:
            found = work()
        told[name] = watch.told
        return found

    def start():
        from topiczoo import corpora, inference, models

        return corpora, inference, models

    corpora, inference, models = timed("from topiczoo import models, inference, corpora", start)
    import jax

    def count(event, seconds, **_):
        Watch.programs += event == COMPILED

    jax.monitoring.register_event_duration_secs_listener(count)
    corpus, y = corpora.load_reviews(num_documents=DOCUMENTS)
    y = (y - y.mean()) / y.std()
    half = len(corpus) // 2
    short = {"num_topics": TOPICS, "num_warmup": 1, "num_samples": 1, "num_chains": 2, "progress_bar": False}
    fit = timed("first fit", lambda: inference.gibbs(models.slda, corpus, y, **short))
    timed(
        "second fit, another seed and alpha",
        lambda: inference.gibbs(models.slda, corpus, y, seed=1, alpha=0.3, **short),
    )
    timed(
        "the same from random topics", lambda: inference.gibbs(models.slda, corpus, y, seed=2, start="random", **short)
    )
    inference.gibbs(models.slda, corpus[:half], y[:half], **short)
    timed("another half of the corpus", lambda: inference.gibbs(models.slda, corpus[half:], y[half:], **short))
    vem = {"num_topics": TOPICS, "num_iterations": 2, "progress_bar": False}
    timed("first vem", lambda: inference.vem(models.slda, corpus, y, **vem))
    timed("second vem, another seed and alpha", lambda: inference.vem(models.slda, corpus, y, seed=1, alpha=0.3, **vem))
    timed("first predict of one document", lambda: fit.predict(corpus[:1]))
    timed("second predict, another document", lambda: fit.predict(corpus[1:2]))
    timed("first transform of one document", lambda: fit.transform(corpus[:1]))
    timed("second transform, another document", lambda: fit.transform(corpus[1:2]))
    return told


def measure(script):
    """The table: a process with an empty folder of programs, and one with what that has left."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        os.environ["TOPICZOO_CACHE"] = folder
        found = {name: run_part(script, "waiting", data=".") for name in ("cold", "warm")}
    rows = [
        (name, [_shown(found["cold"][name]), _shown(found["warm"][name])])
        for name in found["cold"]
    ]  # fmt: skip
    return table_of("seconds (CPU seconds, programs compiled or read)", ["empty folder", "programs on the disk"], rows)


def _shown(told):
    return f"{told['seconds']:.2f} ({told['CPU seconds']:.2f}, {told['programs']})"


if __name__ == "__main__":
    sys.exit(__doc__)
