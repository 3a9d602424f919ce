"""Fits made of numbers rather than by an engine: small, known, and with words that would break a careless page."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import align
from topiczoo.inference import Fit
from topiczoo.inference.story.reader import bind
from topiczoo.inference.story.response import Response
from topiczoo.inference.story.tracing import Story
from topiczoo.models import draw_words

WICKED = ["<script>window.hacked=1</script>", "</script>", "<img src=x onerror=window.hacked=1>", '"it\'s" & $x$']
# and what else a name may hold: marks that turn the direction, no place to break a line, an end of what stands around it
HOSTILE = [
    *WICKED, "\u202etxet desrever", "\u2067\u200fright\u200eleft", "x" * 500, "</details></bdi></td>", "&lt;b&gt;",
    "a\x0bb\x1bc", "{braces} %s {0}", "שלום", "`${window.hacked=1}`",
]  # fmt: skip
NAME = "</script><script>window.hacked=1</script> 'n' \"all\""


def classes(corpus, y=None, *, num_topics=3, num_classes=3):
    """Several columns of coefficients: softmax over classes."""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics, num_classes]).to_event(2))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.3)))
    zbar = draw_words(corpus, theta, beta)
    with documents:
        numpyro.sample("y", dist.Categorical(logits=zbar @ eta), obs=y)


def simulated(
    story=models.slda, *, num_topics=3, num_terms=24, num_documents=40, num_chains=2, num_draws=60, engine="gibbs",
    info=None, differ=False, seed=0, **arguments,
):  # fmt: skip
    """A fit whose draws lie around the truth, topics numbered the other way round in the second chain.

    Topic k has the terms k, k + K, k + 2K, ...: which topic a term belongs to is known. With ``differ`` the chains
    have other topics altogether.
    """
    rng = np.random.default_rng(seed)
    belongs = np.arange(num_terms) % num_topics == np.arange(num_topics)[:, None]
    # the first terms of a topic are its most frequent ones
    beta = np.where(belongs, 1.0 / (1 + np.arange(num_terms) // num_topics), 0.002)
    beta /= beta.sum(1, keepdims=True)
    theta = rng.dirichlet(0.3 / np.arange(1, num_topics + 1), num_documents) + 1e-6
    theta /= theta.sum(1, keepdims=True)
    counts = np.stack([rng.multinomial(40, row @ beta) for row in theta])
    vocabulary = [*WICKED, *(f"term{v}" for v in range(len(WICKED), num_terms))]
    corpus = Corpus.from_counts(counts, vocabulary, names=[NAME, *(f"document {d}" for d in range(1, num_documents))])
    eta = np.linspace(-1.0, 2.0, num_topics)
    y = None
    if story is classes:
        y = theta.argmax(1).astype(float)
    elif story not in (models.lda, models.mixture):
        y = (theta @ eta + 0.2 * rng.normal(size=num_documents)).astype(np.float32)
        y[-1] = np.nan
    bound = Story(story, {"num_topics": num_topics, **arguments})
    graph = bind(bound, corpus, Response({} if y is None else {"y": np.asarray(y, np.float32)}))

    chains = []
    for chain in range(num_chains):
        order = np.arange(num_topics)[:: -1 if chain % 2 else 1]
        centre = np.roll(beta, 3 * num_topics // 2 + 1, axis=1) if differ and chain else beta
        one = {}
        one["beta"] = rng.gamma(2000 * centre[order] + 1e-3, size=(num_draws, num_topics, num_terms))
        one["beta"] /= one["beta"].sum(-1, keepdims=True)
        of_documents = rng.gamma(50 * theta[:, order] + 1e-3, size=(num_draws, num_documents, num_topics)) + 1e-9
        if story is models.mixture:
            one["theta"] = of_documents.mean(1)
        else:
            one["theta"] = of_documents
        one["theta"] /= one["theta"].sum(-1, keepdims=True)
        if graph.dims.get("eta") == ("topic",):
            one["eta"] = eta[order] + 0.05 * rng.normal(size=(num_draws, num_topics))
        if "sigma" in graph.dims:
            one["sigma"] = 0.2 * np.exp(0.05 * rng.normal(size=num_draws))
        if story is classes:
            one["eta"] = 4 * np.eye(num_topics)[order] + 0.1 * rng.normal(size=(num_draws, num_topics, num_topics))
        chains.append(one)
    posterior = {name: np.stack([one[name] for one in chains]).astype(np.float32) for name in chains[0]}
    return Fit.of(graph, posterior, engine=engine, info={"seed": 7, "num_warmup": 10, **(info or {})})


def hostile(num_topics=3, num_documents=30):
    """A fit with classes, all of whose names are hostile: of terms, documents, topics, classes; with texts."""
    fit = simulated(classes, num_topics=num_topics, num_terms=24, num_documents=num_documents, num_draws=60)
    vocabulary = [*HOSTILE, *(f"term{v}" for v in range(len(HOSTILE), 24))]
    names = [f"{HOSTILE[d % len(HOSTILE)]} {d}" for d in range(num_documents)]
    corpus = Corpus.from_counts(fit.corpus.counts, vocabulary, names=names)
    texts = [
        "\n".join(" ".join([vocabulary[v]] * n) for v, n in enumerate(row) if n) for row in corpus.counts.toarray()
    ]
    fit.corpus = corpus.with_texts(texts)
    labels = np.array([HOSTILE[0], HOSTILE[4] + "y" * 300, HOSTILE[1] + " z" * 150], object)[:num_topics]
    fit.response = replace(fit.response, classes=labels)
    return align(fit).rename([f"{HOSTILE[k % len(HOSTILE)]} {k} {'long' * 75}" for k in range(num_topics)])
