"""Do words come in sentences? Held-out second halves of documents, given the first, under htmm and under lda.

    .venv/bin/python benchmarks/sentences.py --data ../shared/data/bbc-news
    .venv/bin/python benchmarks/sentences.py            # sentences simulated from htmm

Documents are cut into sentences and halved between two of them. Both stories are fitted by gibbs to the same four fifths of
the documents; for the others log p(second half | first half) is the logarithm of the mean, over posterior draws and over
draws of theta given the first half, of the chance of the second half with all topics summed out. lda is htmm with a
sentence for every word and a switch of 1, so that one program measures both.
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from measuring import circumstances
from scipy.special import logsumexp

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.kernels.sentences import Chain, draw_sentences, log_words, of_sentences

ROUNDS, BURN = 30, 10  # of topics and theta given a first half
SETTINGS = {"num_warmup": 300, "num_samples": 50, "num_chains": 2, "thinning": 10, "seed": 0}


def read(folder: Path) -> Corpus:
    """The texts of a folder over its vocabulary, in sentences; stop words and rare words are not in it."""
    texts = pd.read_csv(folder / "text.csv.gz")["text"].fillna("").astype(str)
    vocabulary = (folder / "vocabulary.txt").read_text().split("\n")
    corpus = Corpus.from_texts(
        texts,
        vocabulary=[term for term in vocabulary if term],
        sentences=True,
        empty="drop",
        token_pattern=r"(?u)\b\w\w+\b",
    )
    return corpus[corpus.lengths >= 20]


def simulated(number: int = 500, sentences: int = 12, words: int = 8, terms: int = 1000, topics: int = 20) -> Corpus:
    """Documents whose sentences share a topic and take a new one three times of ten."""
    rng = np.random.default_rng(0)
    beta, vocabulary = rng.dirichlet(np.full(terms, 0.05), topics), np.arange(terms).astype(str)
    documents = []
    for _ in range(number):
        theta, topic, own = rng.dirichlet(np.full(topics, 0.1)), -1, []
        for _ in range(sentences):
            topic = rng.choice(topics, p=theta) if topic < 0 or rng.random() < 0.3 else topic
            own.append(vocabulary[rng.choice(terms, words, p=beta[topic])].tolist())
        documents.append(own)
    return Corpus.from_sentences(documents)


def first_halves(corpus: Corpus) -> Corpus:
    """The sentences of each document until half of its words are read."""
    parts = []
    for d in range(len(corpus)):
        own = slice(corpus.sentences.ends[d], corpus.sentences.ends[d + 1])
        terms, numbers = corpus.sentences.terms[own], corpus.sentences.numbers[own]
        last = numbers[len(numbers) // 2]
        kept = numbers < last if (numbers < last).any() else numbers <= last
        parts.append([corpus.vocabulary[terms[kept & (numbers == n)]].tolist() for n in np.unique(numbers[kept])])
    return Corpus.from_sentences(parts, vocabulary=corpus.vocabulary)


def word_by_word(corpus: Corpus) -> Corpus:
    """Every word a sentence of its own."""
    return corpus.with_sentences(corpus.sentences.terms, np.concatenate([np.arange(n) for n in corpus.lengths]))


def log_second(whole: Corpus, first: Corpus, fit, switches: np.ndarray) -> np.ndarray:
    """log p(second half | first half) of each document."""
    half, full = (documents(corpus, batches=True).laid_out for corpus in (first, whole))
    alpha, num_topics = fit.story.arguments["alpha"], fit.story.arguments["num_topics"]

    @jax.jit
    def gained(key: jax.Array, beta: jax.Array, switch: jax.Array) -> jax.Array:
        term_topic = jnp.pad(jnp.maximum(beta.T, 1e-30), ((0, 1), (0, 0)), constant_values=1.0)

        def turn(theta: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            chain = Chain(term_topic, theta, switch)
            z = of_sentences(*draw_sentences(key, chain, half), half, num_topics, len(beta.T))
            theta = jax.random.dirichlet(jax.random.fold_in(key, 1), z.new + alpha)
            chain = Chain(term_topic, jnp.maximum(theta, 1e-12), switch)
            return chain.theta, log_words(chain, full) - log_words(chain, half)

        start = jnp.full((len(first), num_topics), 1 / num_topics)
        return jax.lax.scan(turn, start, jax.random.split(key, ROUNDS))[1][BURN:]

    draws = [
        np.asarray(gained(jax.random.key(i), jnp.asarray(beta), jnp.float32(switch)))
        for i, (beta, switch) in enumerate(zip(np.concatenate(fit.global_draws()["beta"]), switches, strict=True))
    ]
    found = np.concatenate(draws)
    return logsumexp(found, axis=0) - np.log(len(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--documents", type=int, default=10**9, help="of all, at the most")
    told = parser.parse_args()
    corpus = read(told.data) if told.data else simulated()
    corpus = corpus[np.random.default_rng(0).permutation(len(corpus))[: told.documents]]
    train, test = corpus[len(corpus) // 5 :], corpus[: len(corpus) // 5]
    first = first_halves(test)
    words = (test.lengths - first.lengths).sum()
    print(circumstances(__file__, ("jax", "numpyro")), f"{datetime.date.today()}.")
    print(f"{len(train)} documents to fit, {len(test)} held out, {corpus.num_terms} terms, {told.topics} topics.")
    given = {"num_topics": told.topics, "alpha": 0.1, "gamma": 0.1}
    for story in (models.lda, models.htmm):
        began, used = time.perf_counter(), time.process_time()
        fit = inference.gibbs(story, train, **given, **SETTINGS, progress_bar=False)
        took, used = time.perf_counter() - began, time.process_time() - used
        number = np.concatenate(fit.global_draws()["beta"]).shape[0]
        if story is models.htmm:
            switches, parts = np.ravel(fit.draws["switch"])[:number], (test, first)
            print(f"switch: {np.mean(switches):.3f}, deviation {np.std(switches):.3f}")
        else:
            switches, parts = np.ones(number), (word_by_word(test), word_by_word(first))
        found = log_second(*parts, fit, switches)
        print(
            f"{story.__name__}: perplexity {np.exp(-found.sum() / words):.1f}, {took:.0f} s, {used:.0f} CPU s",
            flush=True,
        )


if __name__ == "__main__":
    main()
