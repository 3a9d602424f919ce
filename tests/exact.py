"""The exact posterior of a story on a corpus of a few tokens: all assignments of topics are summed.

Two ways to average over the continuous sites, which must agree: NUTS on the exact marginal density, and draws from the
prior weighted by the exact marginal likelihood. The second needs no Markov chain and compiles in seconds; on a few tokens
the posterior is near enough to the prior for it.
"""

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
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import run, total


class _WithoutWords(Messenger):
    """The story without the density of its words, of their topics and of what reads the topics."""

    def __init__(self, parts, discrete):
        super().__init__(None)
        self.parts, self.discrete = parts, discrete

    def process_message(self, msg):
        if msg["type"] == "draw_words":
            msg["value"] = msg["args"][1]
        elif msg["type"] == "sample" and msg["name"] in self.parts:
            if msg["name"] in self.discrete:  # one topic or class a document: no site of the marginal
                msg["value"], msg["is_observed"] = jnp.zeros(msg["fn"].shape(), jnp.int32), True
            msg["fn"] = msg["fn"].mask(False)


class Exact:
    """A story on a corpus so small that every assignment of topics can be written down."""

    def __init__(self, story, corpus, y=None, **arguments):
        self.graph = graph = read(story, corpus, y, arguments)
        self.corpus = documents(corpus, tokens=True, pairs=True)
        self.y = jax.tree.map(jnp.asarray, graph.y)
        num_topics = graph.num_topics if graph.has_words else arguments["num_topics"]
        length = corpus.num_tokens if graph.has_words else len(corpus)
        every_z = np.array(list(itertools.product(range(num_topics), repeat=length)), np.int32)
        self.classes = [name for name, site in graph.latent.items() if site.discrete and name != "z"]
        # every assignment of topics with every assignment of classes, [assignments, documents] each
        number = [len(graph.latent[name].fn.enumerate_support(expand=False)) for name in self.classes]
        parts = itertools.product(
            range(len(every_z)), *(itertools.product(range(n), repeat=len(corpus)) for n in number)
        )
        first, *of_classes = zip(*parts, strict=True)
        self.every = {"z": jnp.asarray(every_z[list(first)])}
        self.every |= {n: jnp.asarray(v, jnp.int32) for n, v in zip(self.classes, of_classes, strict=True)}
        self.parts = list(dict.fromkeys(["z", "w", *graph.response_sites, *graph.children(self.classes)]))
        self.sites = [name for name, site in graph.latent.items() if not site.discrete]

    def story(self):
        """The story without what the sum below accounts for."""
        with _WithoutWords(self.parts, ["z", *self.classes]):
            self.graph.story(self.corpus, self.y)

    def log_joint(self, values):
        """log p(z, classes, w, and all that reads them | the continuous sites) of every assignment."""

        def one(assigned):
            return total(run(self.graph.story, self.corpus, self.y, {**values, **assigned}), self.parts)

        return jax.vmap(one)(self.every)

    def log_likelihood(self, values):
        """The log of the sum over all assignments."""
        return jax.nn.logsumexp(self.log_joint(values))

    def by_nuts(self, num_samples=800, seed=1):
        """Draws [chain, draw, ...]."""

        def model():
            with numpyro.handlers.trace() as trace:
                self.story()
            numpyro.factor("all", self.log_likelihood({name: trace[name]["value"] for name in self.sites}))

        kernel = NUTS(model, target_accept_prob=0.9)
        settings = {"num_warmup": 400, "num_chains": 2, "chain_method": "vectorized", "progress_bar": False}
        mcmc = MCMC(kernel, num_samples=num_samples, **settings)
        mcmc.run(jax.random.key(seed))
        draws = mcmc.get_samples(group_by_chain=True)
        return {name: np.asarray(draws[name]) for name in self.sites}

    def by_weights(self, num_draws=15_000, seed=1):
        """Draws from the prior [1, draw, ...] and their weights; of classes the mean given each draw."""

        @jax.jit
        def draw(key):
            def one(key):
                with numpyro.handlers.trace() as trace, numpyro.handlers.seed(rng_seed=key):
                    self.story()
                values = {name: trace[name]["value"] for name in self.sites}
                joint = self.log_joint(values)
                weight = jax.nn.logsumexp(joint)
                shares = {f"share of {n}": jax.nn.softmax(joint) @ self.every[n] for n in self.classes}
                observed = [name for name in self.graph.observed if name not in self.parts]
                if observed:
                    weight = weight + total(trace, observed)
                for name in set(self.sites) & set(self.parts):
                    # a latent site below the words: its density is in the sum, so what it was drawn from has to go
                    weight = weight - trace[name]["fn"].base_dist.log_prob(trace[name]["value"]).sum()
                return {**values, **shares}, weight

            return jax.lax.map(one, jax.random.split(key, num_draws), batch_size=500)

        values, log_weights = draw(jax.random.key(seed))
        log_weights = np.asarray(log_weights, float)
        weights = np.exp(log_weights - log_weights.max())
        return {name: np.asarray(value)[None] for name, value in values.items()}, weights / weights.sum()

    def summaries(self):
        """By weights where enough of them count (a scale near zero makes a few count for all), else by NUTS."""
        draws, weights = self.by_weights()
        if 1 / (weights**2).sum() > 500:
            return summaries(draws, weights)
        return summaries(self.by_nuts())


def label_free(draws):
    """Quantities that do not change when topics are renumbered, each [chain, draw]."""
    out = {}
    for name, value in draws.items():
        flat = value.reshape(*value.shape[:2], -1).astype(float)
        if name.startswith("share of "):
            out |= {f"{name}[{d}]": flat[..., d] for d in range(flat.shape[-1])}
        elif name in ("beta", "theta", "logits") or (value.ndim > 2 and np.allclose(value.sum(-1), 1, atol=1e-3)):
            out[f"{name} squared"] = (flat**2).sum(-1)
        elif flat.shape[-1] == 1:
            out[name] = np.log(flat[..., 0]) if (flat > 0).all() else flat[..., 0]
        else:
            out[f"{name} sum"], out[f"{name} squared"] = flat.sum(-1), (flat**2).sum(-1)
    return out


def summaries(draws, weights=None):
    """Mean and squared standard error of every label-free quantity."""
    out = {}
    for name, value in label_free(draws).items():
        if weights is None:
            out[name] = value.mean(), value.var() / effective_sample_size(value)
        else:
            mean = np.sum(weights * value[0])
            out[name] = mean, np.sum((weights * (value[0] - mean)) ** 2)
    return out


def standard_errors_apart(first, second):
    """How far two summaries are apart, in standard errors of the difference."""
    return {
        name: float(abs(first[name][0] - second[name][0]) / np.sqrt(first[name][1] + second[name][1])) for name in first
    }
