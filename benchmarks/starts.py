"""Where chains start, and whether they agree: topics at random, or twice as many that are merged, by inference.gibbs.

    python benchmarks/starts.py --into FILE [--tasks demo,bbc-news] [--starts merged,random] [--seeds 0,1] [--topics 20]
    python benchmarks/starts.py --from FILE --write

demo: the demonstration's own fit (topiczoo/demo.py). Other tasks are folders of ../shared/data: LDA with its default priors
on documents of 21 to 600 words. Four chains each. Printed: the share of words in topics that a pair of chains has in common
(cosine of mean topics above 0.9), mean and least over pairs; how many chains have all topics of the chain with the highest
log joint density (cosine above 0.95); R-hat of label-invariant quantities; the log joint density of each chain.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path

import numpy as np
from measuring import Results, asked, circumstances, frame, matched, show, table_of
from scipy import sparse

HERE = Path(__file__).resolve().parent
TITLE = "where chains start, by the package itself"
PACKAGES = ("topiczoo", "jax", "numpyro")
COMMON, SAME = 0.9, 0.95  # cosines


def fitted(task, start, seed, topics, draws, data):
    """A fit of four chains."""
    from topiczoo import corpora, inference, models
    from topiczoo.demo import SETTINGS, parts

    if task == "demo":
        corpus, stars = corpora.load_reviews(seed=seed)
        train, _ = parts(len(corpus), seed)
        y = (stars[train] - stars[train].mean()) / stars[train].std()
        return inference.gibbs(models.slda, corpus[train], y, seed=seed, start=start, progress_bar=False, **SETTINGS)
    counts = sparse.load_npz(Path(data) / task / "counts.npz").tocsr()
    lengths = np.asarray(counts.sum(1)).ravel()
    corpus = corpora.Corpus.from_counts(counts[(lengths > 20) & (lengths <= 600)])
    run = {"num_topics": topics, "num_warmup": draws, "num_samples": draws // 4, "num_chains": 4}
    return inference.gibbs(models.lda, corpus, seed=seed, start=start, progress_bar=False, **run)


def part(task, start, seed, topics, draws, data):
    from topiczoo.diagnostics.convergence.chain_checks import numbers_of
    from topiczoo.diagnostics.convergence.diagnosis import THRESHOLDS
    from topiczoo.diagnostics.convergence.quantities import series

    began = time.process_time()
    fit = fitted(task, start, seed, topics, draws, data)
    seconds = time.process_time() - began
    chains = range(fit.statistics["lp"].shape[0])
    beta = [fit.mean("beta", chain=chain).astype(float) for chain in chains]
    lengths = fit.corpus.lengths[:, None]
    usage = [(fit.mean("theta", chain=chain) * lengths).sum(0) / lengths.sum() for chain in chains]
    pairs = itertools.combinations(chains, 2)
    shares = [usage[i][matched(beta[i], beta[j])[1] > COMMON].sum() for i, j in pairs]
    joint = fit.statistics["lp"].mean(1)
    whole = sum(bool((matched(beta[joint.argmax()], other)[1] > SAME).all()) for other in beta)
    numbers = numbers_of([one for one in series(fit) if one.kind == "label-invariant"], THRESHOLDS)
    return {
        "share": float(np.mean(shares)), "least": float(min(shares)), "whole": whole, "chains": len(beta),
        "r_hat": float(numbers["r_hat"].max()), "effective": float(numbers["ess_bulk"].min()),
        "joint": joint.round(1).tolist(), "cpu": seconds,
    }  # fmt: skip


def table(rows):
    lines = []
    for (task, start), own in rows.groupby(["task", "start"], sort=False):
        alike, mixed = own["whole"] == own["chains"], own["r_hat"] <= 1.01
        spread = own["joint"].map(np.ptp).mean()
        lines.append((f"{task}, {start}", [
            str(len(own)), str(int(alike.sum())), str(int((alike & mixed).sum())), f"{own['r_hat'].median():.3f}",
            f"{own['share'].mean():.2f}, {own['least'].min():.2f}", f"{spread:,.0f}", f"{own['cpu'].mean():.0f}",
        ]))  # fmt: skip
    heads = ("fits", "all topics matched", "and R-hat at most 1.01", "median R-hat", "share of words, mean, least",
             "log joint, from best to worst chain", "CPU seconds")  # fmt: skip
    return table_of("task, start", heads, lines)


def main():
    options = asked(
        __doc__, tasks=("demo", "bbc-news"), starts=("merged", "random"), seeds=(0,), topics="20", draws="400",
        data=str(HERE.parent.parent / "shared/data"),
    )  # fmt: skip
    if options.files:
        text = f"`python benchmarks/starts.py --into FILE`, shown by {circumstances(__file__, PACKAGES)}\n\n"
        show(text + table(frame(options.files)), TITLE, options.write)
        return
    results = Results(options.into, ("task", "start", "seed"))
    size = int(options.topics), int(options.draws)
    for seed in options.seeds:
        for task in options.tasks:
            for start in options.starts:
                results.part((task, start, seed), partial(part, task, start, seed, *size, options.data))


if __name__ == "__main__":
    main()
