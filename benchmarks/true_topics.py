"""Is the true number of topics named? Corpora simulated from LDA with a known one, judged by diagnostics.compare_topics.

    .venv/bin/python benchmarks/true_topics.py --into FILE             # ten corpora of each number
    .venv/bin/python benchmarks/true_topics.py --from FILE --write     # their table into benchmarks/results.md

A corpus has 300 documents of 60 to 100 words over 300 terms, topics from Dir(0.05) (some fifteen terms each), proportions
from Dir(0.2), drawn from the story lda by inference.Trials; lengths are the same in all corpora, so that programs are
compiled once for a number of topics. A third of the documents is held out. Fits have the true alpha and gamma.

--corpora chooses the set: "reported" is what the table shows, "tried" is another, on which the rule was chosen.
"""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
from measuring import Results, asked, shown

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import compare_topics
from topiczoo.inference import Trials

TITLE = "the true number of topics, named on simulated corpora"
PRIORS = {"alpha": 0.2, "gamma": 0.05}
DOCUMENTS, TERMS, LENGTHS = 300, 300, (60, 100)
GIBBS = {"num_warmup": 80, "num_samples": 20, "num_chains": 4}
FIRST = {"reported": 0, "tried": 1000}  # key of the first corpus of a set


@cache
def simulator(true):
    rng = np.random.default_rng(0)
    lengths = rng.integers(LENGTHS[0], LENGTHS[1] + 1, DOCUMENTS)
    like = Corpus.from_counts(np.stack([rng.multinomial(n, np.full(TERMS, 1 / TERMS)) for n in lengths]))
    trials = Trials(models.lda, like, num_topics=true, **PRIORS)
    simulate = jax.jit(trials.simulate)
    return lambda key: trials.corpus(simulate(jax.random.key(key)).terms, like)


def named(true, number, corpora, around):
    """What compare_topics says of one corpus."""
    corpus = simulator(true)(FIRST[corpora] + 100 * true + number)
    candidates = [true + step for step in around if true + step >= 2]
    found = compare_topics(
        models.lda, corpus, topics=candidates, folds=3, most_draws=3, seed=0, progress_bar=False, **GIBBS, **PRIORS
    )
    table = found.table.drop(columns="coherence").round(5)
    return {
        "candidates": candidates,
        "named": found.best,
        "table": table.reset_index().to_dict("list"),
        "why": found.why,
    }


def table(rows):
    lines = [
        "| true number | corpora | named rightly | named too few | named too many | seconds a corpus |",
        "|---|---|---|---|---|---|",
    ]
    for true, part in [*rows.groupby("true"), ("all", rows)]:
        off = part["named"] - part["true"]
        counts = [len(part), (off == 0).sum(), (off < 0).sum(), (off > 0).sum()]
        lines.append(f"| {true} | " + " | ".join(map(str, counts)) + f" | {part['seconds'].mean():.0f} |")
    return "\n".join(lines)


def main():
    options = asked(__doc__, true=[3, 5, 8, 12], numbers=list(range(10)), around=[-1, 0, 1, 2], corpora="reported")
    if shown(options, __file__, ("topiczoo", "jax", "numpyro"), table, TITLE, "corpora"):
        return
    results = Results(options.into, ["corpora", "number", "true"])
    for number in options.numbers:
        for true in options.true:
            results.part(
                (options.corpora, number, true),
                lambda true=true, number=number: named(true, number, options.corpora, options.around),
            )


if __name__ == "__main__":
    main()
