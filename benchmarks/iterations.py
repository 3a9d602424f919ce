"""Whole Gibbs iterations on a CPU, by XLA's sweep and by the C++ one, beside tomotopy, for several numbers of topics.

    python benchmarks/iterations.py --into FILE [--topics 10,50,200] [--stories lda,slda] [--ways xla,c++,tomotopy]
    python benchmarks/iterations.py --from FILE --write

The corpus is that of speed.py (counts.npz and documents.csv with a rating in --data). One chain on all cores, from random
topics. An iteration is what a call of ``inference.gibbs`` takes longer for one more of them, the compiled programs being
kept: topics of words, beta, coefficients, counts; every tenth is kept, with theta and the log joint density. tomotopy
trains as many iterations with a worker a core, after twenty to settle, its hyperparameters fixed like ours. Each in a
process of its own, one after the other. Seconds are those of a clock and of processors, all threads together: with other
work on the machine the latter are to be compared. speed_picture.py draws the table.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from measuring import Results, asked, circumstances, frame, run_part, show, table_of
from speed import ALPHA, GAMMA, load

HERE = Path(__file__).resolve().parent
TITLE = "whole iterations on a CPU"
WAYS = ("xla", "c++", "tomotopy")
THINNING = 10


def more(topics):
    """Iterations that are timed."""
    return 40 if topics <= 50 else 20


def clocks():
    """Seconds of a clock, and of processors."""
    return np.array([time.perf_counter(), time.process_time()])


def measured(seconds, tokens, by):
    return {
        "iteration": seconds[0], "cpu": seconds[1], "tokens": int(tokens), "by": by, "load": os.getloadavg()[0],
    }  # fmt: skip


def by_topiczoo(way, story, topics, data):
    from topiczoo import corpora, inference, models

    os.environ["TOPICZOO_NATIVE"] = "off" if way == "xla" else ""
    if way == "c++":
        inference.compile_sweep()
    counts, vocabulary, rating = load(data)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    y = (rating - rating.mean()) / rating.std()

    def seconds(draws, seed):
        began = clocks()
        fit = inference.gibbs(
            getattr(models, story), corpus, *([] if story == "lda" else [y]), num_topics=topics, alpha=ALPHA, gamma=GAMMA,
            seed=seed, num_warmup=0, num_samples=draws, thinning=THINNING, num_chains=1, start="random", progress_bar=False,
        )  # fmt: skip
        return clocks() - began, fit.info["sweep"]

    seconds(THINNING, 0)  # compiles
    few, by = seconds(THINNING, 1)
    many, _ = seconds(THINNING + more(topics), 1)
    return measured((many - few) / more(topics), corpus.num_tokens, by)


def by_tomotopy(story, topics, data):
    import tomotopy

    counts, vocabulary, rating = load(data)
    y = (rating - rating.mean()) / rating.std()
    settings = {"k": topics, "alpha": ALPHA, "eta": GAMMA, "seed": 1}
    model = tomotopy.LDAModel(**settings) if story == "lda" else tomotopy.SLDAModel(vars=["l"], **settings)
    for row in range(counts.shape[0]):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        words = [vocabulary[w] for w in np.repeat(counts.indices[part], counts.data[part].astype(int))]
        model.add_doc(words, **({} if story == "lda" else {"y": [float(y[row])]}))
    model.optim_interval = 0
    model.train(20, workers=os.cpu_count())
    began = clocks()
    model.train(more(topics), workers=os.cpu_count())
    return measured((clocks() - began) / more(topics), counts.sum(), f"tomotopy {tomotopy.__version__}")


def table(rows):
    """Seconds an iteration, and how many times as fast as tomotopy."""
    cells = []
    for (story, topics), group in rows.groupby(["story", "topics"]):
        group = group.set_index("way")
        both = [
            f"{group['cpu'][way]:.3f} / {group['iteration'][way]:.3f}" if way in group.index else "" for way in WAYS
        ]
        times = [
            f"{group[clock]['tomotopy'] / group[clock]['c++']:.2f}" if {"c++", "tomotopy"} <= set(group.index) else ""
            for clock in ("cpu", "iteration")
        ]
        cells.append((f"{story}, K={topics}", [*both, *times, " / ".join(f"{load:.0f}" for load in group["load"])]))
    heads = ["XLA", "C++", "tomotopy", "times as fast, CPU s", "times as fast, clock", "load"]
    return table_of("CPU s / clock s an iteration", heads, cells)


def main():
    if "--part" in sys.argv:  # PART is WAY/STORY/TOPICS
        (way, story, topics), data = sys.argv[sys.argv.index("--part") + 1].split("/"), sys.argv[-1]
        found = (
            by_tomotopy(story, int(topics), data) if way == "tomotopy" else by_topiczoo(way, story, int(topics), data)
        )
        print(json.dumps(found))
        return
    default = str(HERE.parent.parent / "shared/data/movie-reviews")
    arguments = asked(__doc__, topics=[10, 50, 200], stories=["lda", "slda"], ways=list(WAYS), data=default)
    if arguments.files:
        rows = frame(arguments.files)
        packages = ("topiczoo", "jax", "numpyro", "tomotopy")
        text = f"`python benchmarks/iterations.py --into FILE`, shown by {circumstances(__file__, packages)}"
        cpu = rows[rows["way"].isin(WAYS)]
        text += f"\n\n{cpu['tokens'].iloc[0]} tokens, alpha {ALPHA}, gamma {GAMMA}, every {THINNING}th draw kept."
        text += f"\n\n{table(cpu)}"
        show(text, TITLE, arguments.write)
        return
    results = Results(arguments.into, ("way", "story", "topics"))
    for topics in arguments.topics:
        for story in arguments.stories:
            for way in arguments.ways:
                name = f"{way}/{story}/{topics}"
                results.part((way, story, topics), lambda name=name: run_part(__file__, name, data=arguments.data))


if __name__ == "__main__":
    main()
