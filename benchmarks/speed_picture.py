"""Tokens a second against the number of topics, whole Gibbs iterations: this package on a CPU and a GPU, and its peers.

    python benchmarks/speed_picture.py

Reads benchmarks/speed.csv, whose rows are taken from results.md (iterations.py and gpu.py have measured them), and writes
docs/pictures/speed.svg. On a CPU tokens a second are those of one core: tokens by the seconds of processors.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import pandas as pd
from matplotlib import pyplot

HERE = Path(__file__).resolve().parent
INTO = HERE.parent / "docs" / "pictures" / "speed.svg"
LOOKS = {  # colours that also the colour-blind tell apart
    "topiczoo, one H200": ("#009e73", "^"), "topiczoo, C++, a core": ("#0072b2", "o"),
    "topiczoo, XLA, a core": ("#56b4e9", "s"), "tomotopy, a core": ("#999999", "x"),
}  # fmt: skip
STORIES = {"lda": ("LDA", "--"), "slda": ("normal sLDA", "-")}


def main():
    rows = pd.read_csv(HERE / "speed.csv", comment="#")
    with pyplot.rc_context({"svg.hashsalt": "topiczoo"}):  # the same file whenever rows are the same
        figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
        for (by, story), group in rows.groupby(["by", "story"], sort=False):
            (colour, marker), (name, line) = LOOKS[by], STORIES[story]
            group = group.sort_values("topics")
            speed = group["tokens"] / group["seconds"]
            axes.plot(group["topics"], speed, line, color=colour, marker=marker, label=f"{by}: {name}")
        axes.set(xscale="log", yscale="log", xlabel="topics", ylabel="tokens a second, whole iterations")
        axes.set_xticks(sorted(rows["topics"].unique()), map(str, sorted(rows["topics"].unique())), minor=False)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
        figure.savefig(INTO, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
