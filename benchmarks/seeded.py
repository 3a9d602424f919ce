"""Are seeded topics about what they are seeded with? Ten newsgroups, a few words each, against LDA.

    .venv/bin/python benchmarks/seeded.py --data ../shared/data/newsgroups20 [--compiled] [--write]

The words were written down from what the groups are called, before anything was fitted. A group counts as found if its
topic (of LDA: any topic, each for one group at the most) has its largest mean share in that group among all twenty, and at
least half of the 100 posts with the largest shares of the topic are the group's. Training posts, terms in at least 20 of
them and in no more than a fifth, by inference.gibbs with two chains.
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import circumstances, parsed, show, table_of
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from topiczoo import inference, models
from topiczoo.corpora import Corpus

HERE = Path(__file__).resolve().parent
TITLE = "ten newsgroups by a few words each: seeded topics beside LDA"
SEEDS = {
    "rec.sport.hockey": ["hockey", "nhl", "goalie"],
    "rec.sport.baseball": ["baseball", "pitcher", "braves"],
    "sci.space": ["space", "orbit", "nasa", "shuttle"],
    "sci.med": ["medical", "disease", "doctor", "patients"],
    "sci.crypt": ["encryption", "clipper", "crypto"],
    "talk.politics.guns": ["gun", "guns", "firearms"],
    "talk.politics.mideast": ["israel", "arab", "turkish"],
    "comp.graphics": ["graphics", "image", "jpeg"],
    "rec.motorcycles": ["bike", "motorcycle", "riding"],
    "rec.autos": ["car", "cars", "engine"],
}
SETTINGS = {"num_warmup": 300, "num_samples": 100, "num_chains": 2, "progress_bar": False}


def read(folder: Path) -> tuple[Corpus, np.ndarray]:
    counts, told = sparse.load_npz(folder / "counts.npz").tocsr(), pd.read_csv(folder / "documents.csv")
    vocabulary = np.array((folder / "vocabulary.txt").read_text().split("\n")[: counts.shape[1]])
    train = np.flatnonzero(told["split"] == "train")
    counts = counts[train]
    frequency = (counts > 0).sum(0)
    kept = np.flatnonzero((np.ravel(frequency) >= 20) & (np.ravel(frequency) <= len(train) / 5))
    corpus = Corpus.from_counts(counts[:, kept], vocabulary[kept], empty="drop")
    return corpus, told["group"].to_numpy()[train][corpus.source_rows]


def fulfilled(theta: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which topics are about which groups, and the share of the group among a topic's first 100 posts, [topics, groups]."""
    names = sorted(set(group))
    mean = np.stack([theta[group == name].mean(0) for name in names], 1)
    first = np.argsort(-theta, 0)[:100]
    share = np.stack([(group[first] == name).mean(0) for name in names], 1)
    about = (mean == mean.max(1, keepdims=True)) & (share >= 0.5)
    own = [names.index(name) for name in SEEDS]
    return about[:, own], share[:, own]


def measured(story, corpus: Corpus, group: np.ndarray, seed: int, start: str | None, **given) -> list[dict]:
    began = time.perf_counter()
    fit = inference.gibbs(story, corpus, num_topics=20, seed=seed, start=start, **SETTINGS, **given)
    seconds, rows = time.perf_counter() - began, []
    for chain in range(2):
        theta = np.asarray(fit.means["theta"] if "theta" in fit.means else fit.draws["theta"].mean(1))[chain]
        about, share = fulfilled(theta, group)
        place = np.arange(len(SEEDS)) if given else linear_sum_assignment(-(about + 0.01 * share).T)[1]
        found = about[place, np.arange(len(SEEDS))]
        missed = [name for name, is_found in zip(SEEDS, found, strict=True) if not is_found]
        rows.append({
            "story": story.__name__, "seed": seed, "chain": chain, "found": int(found.sum()),
            "share": share[place, np.arange(len(SEEDS))].mean(), "missed": ", ".join(missed),
            "seconds": seconds,
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--start", help="where chains start, if not where gibbs does by itself")
    parser.add_argument("--write", action="store_true")
    told = parsed(parser)
    corpus, group = read(told.data)
    seeds, rows = models.seed_words(corpus, list(SEEDS.values())), []
    print(corpus)
    for seed in range(told.seeds):
        for story, given in (
            (models.lda, {}),
            (models.seeded_lda, {"seeds": seeds}),
            (models.keyatm, {"seeds": seeds}),
        ):
            rows += measured(story, corpus, group, seed, told.start, **given)
    heads = ("found", "share of the group among the first 100 posts", "missed", "seconds of both chains")
    cells = [
        (f"{row['story']}, seed {row['seed']}, chain {row['chain']}",
         [str(row["found"]), f"{row['share']:.2f}", row["missed"] or "none", f"{row['seconds']:.0f}"])
        for row in rows
    ]  # fmt: skip
    table = table_of("story", heads, cells)
    text = f"{circumstances(__file__, ('jax', 'numpyro'))} {datetime.date.today()}. {corpus!r}.\n\n{table}"
    show(text, TITLE, told.write)


if __name__ == "__main__":
    main()
