"""Whole Gibbs iterations on a CPU, by XLA's sweep and by the C++ one, beside tomotopy, for several numbers of topics.

    python benchmarks/iterations.py --into FILE [--topics 10,50,200] [--stories lda,slda] [--ways xla,c++,tomotopy]
    python benchmarks/iterations.py --from FILE [GPU_FILE] --write

The corpus is that of speed.py (counts.npz and documents.csv with a rating in --data). One chain on all cores, from random
topics. An iteration is what a call of ``inference.gibbs`` takes longer for one more of them, the compiled programs being
kept: topics of words, beta, coefficients, counts; every tenth is kept, with theta and the log joint density. tomotopy
trains as many iterations with a worker a core, after twenty to settle, its hyperparameters fixed like ours. Each in a
process of its own. --write draws tokens a second against topics as well, to benchmarks/iterations.svg; rows of GPU_FILE,
of the same form, are drawn with them.
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
    return 60 if topics <= 50 else 20


def by_topiczoo(way, story, topics, data):
    from topiczoo import corpora, inference, models

    os.environ["TOPICZOO_NATIVE"] = "off" if way == "xla" else ""
    if way == "c++":
        inference.compile_sweep()
    counts, vocabulary, rating = load(data)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    y = (rating - rating.mean()) / rating.std()

    def seconds(draws, seed):
        began = time.perf_counter()
        fit = inference.gibbs(
            getattr(models, story), corpus, *([] if story == "lda" else [y]), num_topics=topics, alpha=ALPHA, gamma=GAMMA,
            seed=seed, num_warmup=0, num_samples=draws, thinning=THINNING, num_chains=1, start="random", progress_bar=False,
        )  # fmt: skip
        return time.perf_counter() - began, fit.info["sweep"]

    seconds(THINNING, 0)  # compiles
    few, by = min(seconds(THINNING, seed) for seed in (1, 2))
    many, _ = min(seconds(THINNING + more(topics), seed) for seed in (1, 2))
    return {"iteration": (many - few) / more(topics), "tokens": int(corpus.num_tokens), "by": by}


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
    found = []
    for _ in range(2):
        began = time.perf_counter()
        model.train(more(topics), workers=os.cpu_count())
        found.append((time.perf_counter() - began) / more(topics))
    return {"iteration": min(found), "tokens": int(counts.sum()), "by": f"tomotopy {tomotopy.__version__}"}


def table(rows):
    """Milliseconds an iteration, and how many times as fast as tomotopy."""
    cells = []
    for (story, topics), group in rows.groupby(["story", "topics"]):
        took = group.set_index("way")["iteration"]
        times = [f"{1e3 * took[way]:.0f} ms" if way in took else "" for way in WAYS]
        ratios = [
            f"{took['tomotopy'] / took[way]:.2f}" if {way, "tomotopy"} <= set(took.index) else "" for way in WAYS[:2]
        ]
        cells.append((f"{story}, K={topics}", [*times, *ratios]))
    heads = ["XLA's sweep", "C++ sweep", "tomotopy", "XLA, times tomotopy's speed", "C++, times tomotopy's speed"]
    return table_of("an iteration", heads, cells)


def picture(rows):
    """Tokens a second against topics."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "topiczoo"  # the same file whenever rows are the same
    from matplotlib import pyplot

    styles = {
        "xla": ("tab:blue", "o"),
        "c++": ("tab:orange", "s"),
        "tomotopy": ("tab:gray", "x"),
        "gpu": ("tab:green", "^"),
    }
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for (story, way), group in rows.groupby(["story", "way"]):
        group, (colour, marker) = group.sort_values("topics"), styles[way]
        line = "-" if story == "slda" else "--"
        name = {"xla": "topiczoo, XLA", "c++": "topiczoo, C++", "gpu": "topiczoo, one H200"}.get(way, way)
        speed = group["tokens"] / group["iteration"]
        axes.plot(group["topics"], speed, line, color=colour, marker=marker, label=f"{story}, {name}")
    axes.set(xscale="log", yscale="log", xlabel="topics", ylabel="tokens a second, whole iterations")
    axes.legend(fontsize="small", ncols=2)
    axes.grid(alpha=0.3, which="both")
    figure.savefig(HERE / "iterations.svg", metadata={"Date": None})


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
        if arguments.write:
            picture(rows)
        return
    results = Results(arguments.into, ("way", "story", "topics"))
    for topics in arguments.topics:
        for story in arguments.stories:
            for way in arguments.ways:
                name = f"{way}/{story}/{topics}"
                results.part((way, story, topics), lambda name=name: run_part(__file__, name, data=arguments.data))


if __name__ == "__main__":
    main()
