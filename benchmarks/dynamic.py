"""Topics over time: 14,000 documents of 8 periods, 20 topics whose words walk, by inference.gibbs.

    python benchmarks/dynamic.py [--documents 14000] [--periods 8] [--topics 20] [--terms 5000] [--length 100]
    python benchmarks/dynamic.py --write

Documents are simulated from the story of models.dtm. Printed: seconds to the end of the fit, compiling in them; the cosine
of the words that each topic moves to (last period less first) with the truth, mean over topics matched by their words; the
same of the words themselves; and, for documents held out, the perplexity of the second half of a document given the first
beside that of LDA, whose topics stand still.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from measuring import circumstances, cosines, matched, write_section

HERE = Path(__file__).resolve().parent
TITLE = "topics over time"
SCALE, PACE, ALPHA = 1.5, 0.4, 0.1


def simulated(documents, periods, topics, terms, length, seed=0):
    """Counts [documents, terms], the period of each document, and the topics of each period [periods, topics, terms]."""
    rng = np.random.default_rng(seed)
    common = np.log(rng.dirichlet(np.full(terms, 0.5)) + 1e-6)
    steps = rng.normal(0, np.where(np.arange(periods) == 0, SCALE, PACE)[:, None, None], (periods, topics, terms))
    beta = np.exp(common + np.cumsum(steps, 0))
    beta /= beta.sum(-1, keepdims=True)
    period = rng.integers(0, periods, documents)
    theta = rng.dirichlet(np.full(topics, ALPHA), documents)
    size = rng.poisson(length, documents)
    counts = np.zeros((documents, terms), np.int32)
    for d in range(documents):
        counts[d] = rng.multinomial(size[d], theta[d] @ beta[period[d]])
    return counts, period, beta


def predictive(beta, label, half, rest, alpha):
    """Perplexity of the rest of documents given a half, theta by 50 steps of EM given topics [periods, topics, terms]."""
    log_probability = 0.0
    for period in np.unique(label):
        own, first, second = beta[period], half[label == period], rest[label == period]
        theta = np.full((len(first), own.shape[0]), 1 / own.shape[0])
        for _ in range(50):
            theta = theta * ((first / np.maximum(theta @ own, 1e-30)) @ own.T) + alpha
            theta /= theta.sum(1, keepdims=True)
        log_probability += (second * np.log(np.maximum(theta @ own, 1e-30))).sum()
    return float(np.exp(-log_probability / rest.sum()))


def measured(options):
    from topiczoo import corpora, inference, models

    sizes = options.documents + 1000, options.periods, options.topics, options.terms, options.length
    counts, period, beta = simulated(*sizes)
    corpus = corpora.Corpus.from_counts(counts, covariates={"period": period})
    train, test = corpus[:-1000], counts[-1000:]
    run = {"num_warmup": options.warmup, "num_samples": options.draws, "num_chains": 1, "progress_bar": False}
    began, cpu = time.perf_counter(), time.process_time()
    fit = inference.gibbs(
        models.dtm, train, background=models.background(train), period="period", periods=options.periods,
        num_topics=options.topics, alpha=ALPHA, scale=SCALE, pace=PACE, **run,
    )  # fmt: skip
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    step = fit.mean("step", chain=0).astype(float)
    found = jax.nn.softmax(models.background(train) + np.cumsum(step, 0), axis=-1)
    found = np.asarray(found, float)
    own, _ = matched(beta.mean(0), found.mean(0))
    found = found[:, own]
    lift = [
        np.log(part[-1] / part[0]) * np.sqrt(beta.mean(0)) for part in (beta, found)
    ]  # frequent terms count for more
    half = np.random.default_rng(1).binomial(test, 0.5)
    began = time.perf_counter()
    still = inference.gibbs(models.lda, train, num_topics=options.topics, alpha=ALPHA, gamma=0.1, **run)
    still_seconds = time.perf_counter() - began
    topics = np.repeat(still.mean("beta", chain=0).astype(float)[None], options.periods, 0)
    scores = {
        name: predictive(part, period[-1000:], half, test - half, ALPHA)
        for name, part in (("truth", beta), ("dtm", found), ("lda", topics))
    }
    return {
        "device": jax.devices()[0].device_kind, "tokens": train.num_tokens, "seconds": seconds, "cpu": cpu,
        "words": float(np.mean([np.diag(cosines(a, b)) for a, b in zip(beta, found, strict=True)])),
        "moves": float(np.diag(cosines(*lift)).mean()),
        "perplexity": scores, "blocks": fit.info["blocks"], "lda seconds": still_seconds,
        "divergent": float(np.mean(fit.statistics.get("diverging", 0.0))),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"documents": 14000, "periods": 8, "topics": 20, "terms": 5000, "length": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = measured(options)
    print(json.dumps(found))
    if options.write:
        scores = ", ".join(f"{name} {value:.1f}" for name, value in found["perplexity"].items())
        text = (
            f"{circumstances(__file__, ('topiczoo', 'jax', 'numpyro'))}\n\n{options.documents} documents of "
            f"{options.periods} periods, {found['tokens']:,} tokens, {options.terms} terms, {options.topics} topics; "
            f"{options.warmup} sweeps of warm-up and {options.draws} draws of one chain on {found['device']}.\n\n"
            f"{found['seconds']:.0f} s ({found['cpu']:.0f} CPU s); cosine of the words of a topic and period with the truth "
            f"{found['words']:.3f}, of its moves {found['moves']:.3f}; perplexity of held-out halves: {scores}.\n"
        )
        write_section(TITLE, text)


if __name__ == "__main__":
    main()
