"""The exact posterior of a story on a corpus of a few tokens: all assignments of topics are summed."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from numpyro.primitives import Messenger

from topiczoo.corpora.layouts import documents
from topiczoo.inference.reading import log_prob, read, run


class _WithoutWords(Messenger):
    """The story without its words and without what reads their topics."""

    def __init__(self, below):
        super().__init__(None)
        self.below = below

    def process_message(self, msg):
        if msg["type"] == "draw_words":
            msg["value"] = msg["args"][1]
        elif msg["type"] == "sample" and msg["name"] == "z":  # one topic a document: summed below
            msg["value"], msg["is_observed"] = jnp.zeros(msg["fn"].shape(), jnp.int32), True
            msg["fn"] = msg["fn"].mask(False)
        elif msg["type"] == "sample" and msg["name"] in self.below:
            msg["fn"] = msg["fn"].mask(False)


def exact_model(reading):
    """A NumPyro model of the continuous sites: log sum over all z of the story's explicit joint density."""
    corpus = documents(reading.corpus, tokens=True, pairs=True)
    y = jax.tree.map(jnp.asarray, reading.y)
    words = reading.has_words
    num_topics = reading.num_topics if words else reading.story.arguments["num_topics"]
    length = reading.corpus.num_tokens if words else len(reading.corpus)
    every_z = jnp.asarray(list(itertools.product(range(num_topics), repeat=length)), jnp.int32)
    parts = ["z", "w", *reading.below]

    def model():
        with numpyro.handlers.trace() as trace, _WithoutWords(parts):
            reading.story(corpus, y)
        values = {name: trace[name]["value"] for name in reading.latent if name != "z"}

        def one(z):
            sites = run(reading.story, corpus, y, {**values, "z": z})
            return sum(log_prob(sites[name]).sum() for name in parts)

        numpyro.factor("all assignments", jax.nn.logsumexp(jax.vmap(one)(every_z)))

    return model


def exact_draws(story, corpus, y=None, *, num_samples=3000, seed=1, **arguments):
    reading = read(story, corpus, y, arguments)
    mcmc = MCMC(
        NUTS(exact_model(reading), target_accept_prob=0.9), num_warmup=1000, num_samples=num_samples, num_chains=2,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(seed))
    return {name: np.asarray(value) for name, value in mcmc.get_samples(group_by_chain=True).items() if name in reading.latent and name != "z"}


def label_free(draws):
    """Quantities that do not change when topics are renumbered, each [chain, draw]."""
    out = {}
    for name, value in draws.items():
        flat = value.reshape(*value.shape[:2], -1)
        if name in ("beta", "theta", "logits"):
            out[f"{name} squared"] = (flat**2).sum(-1)
        elif flat.shape[-1] == 1:
            out[name] = np.log(flat[..., 0]) if (flat > 0).all() else flat[..., 0]
        else:
            out[f"{name} sum"], out[f"{name} squared"] = flat.sum(-1), (flat**2).sum(-1)
    return out


def standard_errors_apart(first, second):
    """How far two sets of draws are apart, in standard errors of the difference, for each quantity."""
    first, second = label_free(first), label_free(second)
    apart = {}
    for name in first:
        a, b = first[name].astype(float), second[name].astype(float)
        variance = sum(x.var() / effective_sample_size(x) for x in (a, b))
        apart[name] = float(abs(a.mean() - b.mean()) / np.sqrt(variance))
    return apart
