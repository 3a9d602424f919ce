"""Stories beyond LDA on documents simulated from themselves, beside LDA on the same documents.

    python benchmarks/zoo.py --into FILE [--stories hdp,ctm] [--seeds 0]
    python benchmarks/zoo.py --from FILE --write

Each story is drawn from its own priors (topics, proportions, all else), 800 documents of 20 to 100 words over 500 terms,
and fitted by inference.gibbs with the same arguments, two chains of 300 + 1,600 sweeps, every eighth kept, from where it
starts by itself; LDA with as many topics, alpha and gamma learned, likewise. Printed, of the better chain by log joint
density and of the other: the correlation of proportions with the true ones, topics matched; how many of the true
proportions have a rank among draws from the 5th to the 95th hundredth, equal ones at random, topics with less than a
hundredth of the words left out; seconds, compiling in them.
"""

from __future__ import annotations

import numpy as np
from measuring import of_every, table_of

TITLE = "stories beyond LDA, on documents of their own"
PACKAGES = ("topiczoo", "jax", "numpyro")
DOCUMENTS, TERMS, TOPICS = 800, 500, 8
RUN = {"num_warmup": 300, "num_samples": 1600, "thinning": 8, "num_chains": 2, "progress_bar": False}
LABELS = [f"label {k}" for k in range(TOPICS - 1)]


def documents():
    """Lengths and covariates; words are drawn from the story."""
    from topiczoo.corpora import Corpus

    rng = np.random.default_rng(0)
    counts = np.stack([rng.multinomial(n, np.full(TERMS, 1 / TERMS)) for n in rng.integers(20, 101, DOCUMENTS)])
    covariates = {"age": rng.normal(size=DOCUMENTS), "side": rng.integers(0, 2, DOCUMENTS)}
    covariates["period"] = np.arange(DOCUMENTS) * 4 // DOCUMENTS
    has = rng.uniform(size=(DOCUMENTS, len(LABELS))) < 0.3
    return Corpus.from_counts(counts, covariates=covariates | dict(zip(LABELS, has.T.astype(int), strict=True)))


def arguments_of(story):
    """What is given besides numbers of topics and priors."""
    flat = np.full(TERMS, -np.log(TERMS), np.float32)
    return {
        "ctm": {}, "hdp": {"num_topics": 15}, "dmr": {"prevalence": ["age", "side"]}, "stm": {"prevalence": ["age", "side"]},
        "labelled_lda": {"labels": LABELS, "shared": 1, "leak": 0.01, "alpha": 0.5}, "dp_mixture": {"num_topics": 15},
        "stm_content": {"background": flat, "content": "side", "levels": 2},
        "dtm": {"background": flat, "period": "period", "periods": 4},
        "polylingual_lda": {"views": np.arange(TERMS) % 2}, "slda_raters": {"raters": 3, "num_classes": 5},
    }[story]  # fmt: skip


STORIES = (
    "ctm",
    "hdp",
    "dmr",
    "stm",
    "labelled_lda",
    "dp_mixture",
    "stm_content",
    "dtm",
    "polylingual_lda",
    "slda_raters",
)


def compared(found, true, lengths):
    """Correlation with the true proportions, and how many of them have a rank within 90%, of [draws, documents, topics]."""
    from scipy.optimize import linear_sum_assignment

    mean = found.mean(0)
    size = max(mean.shape[1], true.shape[1])
    mean, true = (np.pad(part, ((0, 0), (0, size - part.shape[1]))) for part in (mean, true))
    products = (true * lengths[:, None]).T @ mean
    rows, columns = linear_sum_assignment(-products)
    used = rows[(true[:, rows] * lengths[:, None]).sum(0) >= 0.01 * lengths.sum()]
    own = columns[used]
    correlation = np.corrcoef(true[:, used].ravel(), mean[:, own].ravel())[0, 1]
    rng, inside = np.random.default_rng(0), []
    for j, k in zip(used, own, strict=True):
        if k < found.shape[2]:
            equal = np.abs(found[:, :, k] - true[:, j]) < 1e-6
            below = ((found[:, :, k] < true[:, j]) & ~equal).sum(0)
            rank = (below + rng.uniform(size=len(true)) * (1 + equal.sum(0))) / (1 + len(found))
            inside.append((rank > 0.05) & (rank < 0.95))
    return float(correlation), float(np.mean(inside))


def part(name, seed):
    import inspect
    import time

    import jax

    from topiczoo import inference, models
    from topiczoo.inference.simulation import Simulation

    story, shape, given = getattr(models, name), documents(), arguments_of(name)
    takes = inspect.signature(story).parameters
    usual = {"num_topics": TOPICS, "alpha": 0.2, "gamma": 0.05}
    given = {key: value for key, value in usual.items() if key in takes} | given
    simulation = Simulation(story, shape, given)
    drawn = jax.jit(simulation.simulate)(jax.random.key(seed))
    corpus, y = simulation.corpus(drawn.terms, shape), None if drawn.y is None else np.asarray(drawn.y)
    theta, values = "theta" in drawn.values, drawn.values
    if theta:
        true = np.asarray(values["theta"], float)
    elif "logits" in values:
        true = np.asarray(jax.nn.softmax(values["logits"]), float)
    else:
        true = np.eye(given["num_topics"])[np.asarray(values["z"])]
    row, lengths = {}, corpus.lengths
    site = "theta" if theta else "logits" if "logits" in values else "z"
    for label, own, more in (
        ("own", story, given),
        ("lda", models.lda, {"num_topics": true.shape[1], "alpha": "learned", "gamma": "learned"}),
    ):
        if label == "own":
            keep, response = site, y
        else:
            keep, response = "theta", None
        began = time.perf_counter()
        kept = {} if keep == "z" else {"keep": [keep]}
        fit = inference.gibbs(own, corpus, response, seed=seed, **RUN, **kept, **more)
        row[f"{label} seconds"] = time.perf_counter() - began
        for place, chain in enumerate(np.argsort(-fit.statistics["lp"].mean(1))):
            draws = np.asarray(fit.draws[keep][chain], float) if keep != "z" else classes(fit, chain, corpus)
            shares = np.exp(draws) / np.exp(draws).sum(-1, keepdims=True) if keep == "logits" else draws
            row[f"{label} {place}"] = compared(shares, true, lengths)
    return row


def classes(fit, chain, corpus):
    """The probabilities of each document's class, as one draw."""
    return np.asarray(fit.mean("z", chain=chain) if "z" in fit.means else fit.transform(corpus), float)[None]


def table(rows):
    def both(row, label, which):
        return " / ".join(f"{row[f'{label} {place}'][which]:.3f}"[: 5 if which == 0 else 4] for place in (0, 1))

    lines = [
        (f"{row['story']}, seed {row['seed']}",
         [both(row, "own", 0), "–" if row["story"] == "dp_mixture" else both(row, "own", 1), f"{row['own seconds']:.0f}",
          both(row, "lda", 0), f"{row['lda seconds']:.0f}"])
        for row in rows.to_dict("records")
    ]  # fmt: skip
    heads = ("correlation of proportions, better / other chain", "inside 90%", "seconds", "LDA: correlation", "seconds")
    return table_of("story", heads, lines)


if __name__ == "__main__":
    of_every(("story", "seed"), part, table, __doc__, __file__, PACKAGES, TITLE, stories=STORIES, seeds=(0,))
