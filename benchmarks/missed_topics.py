"""How many topics of the truth do chains miss, from where they start? Simulated corpora, by inference.gibbs.

    python benchmarks/missed_topics.py --into FILE [--corpora together,many] [--starts merged,random] [--seeds 0,1]
    python benchmarks/missed_topics.py --from FILE --write

together: 600 documents of six topics, two of which go together (their logits are correlated by 0.8), by lda, eight chains
of 100 + 10 sweeps. many: 1,500 documents of twenty topics (benchmarks/prevalence.py), by lda, four chains of 60 + 20.
clusters, sticks: 600 documents of one of six topics and some twelve words each, by mixture with six topics and by
dp_mixture with fifteen, four chains of 200 + 100. A topic is missed by a chain where none of the chain's mean topics has a
cosine of 0.8 with it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from measuring import Results, asked, circumstances, frame, matched, show, table_of
from prevalence import simulated

TITLE = "topics that chains miss"
PACKAGES = ("topiczoo", "jax", "numpyro")
DOCUMENTS, TERMS, TOPICS = 600, 300, 6
RUNS = {  # story, number of topics, chains, sweeps before and after
    "together": ("lda", TOPICS, 8, 100, 10), "many": ("lda", 20, 4, 60, 20),
    "clusters": ("mixture", TOPICS, 4, 200, 100), "sticks": ("dp_mixture", 15, 4, 200, 100),
}  # fmt: skip


def made(name, seed):
    """A corpus and its topics."""
    from topiczoo.corpora import Corpus

    if name == "many":
        return simulated(1_500, 2_632, 20, 200, seed)[:2]
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(TERMS, 0.05), TOPICS)
    if name == "together":
        scales = np.eye(TOPICS) * 1.5
        scales[0, 1] = scales[1, 0] = 1.2
        theta = np.exp(1.5 * rng.multivariate_normal(np.zeros(TOPICS), scales, DOCUMENTS))
        theta, length = theta / theta.sum(1, keepdims=True), 60
    else:
        theta, length = np.eye(TOPICS)[rng.integers(0, TOPICS, DOCUMENTS)], 12
    return Corpus.from_counts(np.stack([rng.multinomial(rng.poisson(length) + 5, row @ beta) for row in theta])), beta


def part(name, start, seed):
    from topiczoo import inference

    (corpus, beta), (story, topics, chains, warmup, draws) = made(name, seed), RUNS[name]
    run = {"num_warmup": warmup, "num_samples": draws, "num_chains": chains, "progress_bar": False}
    fit = inference.gibbs(story, corpus, num_topics=topics, seed=seed, start=start, **run)
    found = [matched(beta, fit.mean("beta", chain=chain).astype(float))[1] for chain in range(chains)]
    joint = fit.statistics["lp"][:, -1]
    return {
        "missed": [int((one < 0.8).sum()) for one in found], "of": len(beta),
        "best": float(joint.max()), "worst": float(joint.min()),
    }  # fmt: skip


def table(rows):
    lines = [
        (f"{row.corpora}, seed {row.seed}, {row.start}",
         [", ".join(map(str, row.missed)), str(row.of), f"{row.best:,.0f} to {row.worst:,.0f}", f"{row.seconds:.0f}"])
        for row in rows.itertuples()
    ]  # fmt: skip
    return table_of("corpus, start", ("missed by each chain", "of", "log joint, best to worst chain", "seconds"), lines)


def main():
    options = asked(__doc__, corpora=tuple(RUNS), starts=("merged", "random"), seeds=(0,))
    if options.files:
        text = f"`python benchmarks/missed_topics.py --into FILE`, shown by {circumstances(__file__, PACKAGES)}\n\n"
        show(text + table(frame(options.files)), TITLE, options.write)
        return
    results = Results(options.into, ("corpora", "start", "seed"))
    for seed in options.seeds:
        for name in options.corpora:
            for start in options.starts:
                results.part((name, start, seed), partial(part, name, start, seed))


if __name__ == "__main__":
    main()
