"""Topic assignments as one site: what the Gibbs engine makes of ``draw_words``.

The site ``z`` holds the topic of every token, laid out in batches, together with the two tables of counts that every other
conditional needs. Its density is that of the explicit sites ``z`` and ``w`` together:
log p(z, w | theta, beta) = sum_dk n_dk log theta_dk + sum_kv n_kv log beta_kv. Where topics are those of a document's label
words are counted label by label, and the second table has the shape of beta, [labels, topics, terms]. Where words of a
sentence share their topic, n_dk counts those that were taken from theta, and log p of whether a sentence took one is added.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import xlog1py, xlogy
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from topiczoo.corpora.layouts import PaddedBatches

from ..kernels.assignments import Assignments, Labels, count, long_tokens, mean_topics
from ..kernels.sentences import Chain, draw_sentences, of_sentences
from ..kernels.sweep import FLOOR
from ..samplers.uniforms import token_uniforms, tokens_of_positions


class TopicAssignments(dist.Distribution):
    """p(z, w | theta, beta) as a distribution of :class:`Assignments`; a draw is a uniformly random start."""

    support = constraints.nonnegative_integer
    pytree_data_fields = ("theta", "beta", "batches", "label", "switch")
    pytree_aux_fields = ("counted",)

    def __init__(
        self, theta: jax.Array, beta: jax.Array, batches: PaddedBatches, counted: bool = True,
        label: jax.Array | None = None, switch: jax.Array | None = None,
    ) -> None:  # fmt: skip
        self.theta, self.beta, self.batches, self.counted, self.label = theta, beta, batches, counted, label
        self.switch = switch
        super().__init__(validate_args=False)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> Assignments:
        num_topics, num_terms = self.beta.shape[-2:]
        batches, long = self.batches, None
        if batches.terms is None:  # topics are drawn shard by shard, and the key is told (:mod:`..mcmc.streamed`)
            counts = jnp.zeros((batches.lane.size, num_topics)), jnp.zeros((num_topics, num_terms))
            return Assignments(jax.random.key_data(key), *counts, None, jnp.zeros(()), jnp.zeros(()))

        def drawn(document: jax.Array, position: jax.Array) -> jax.Array:
            return jnp.floor(token_uniforms(key, document, position)[0] * num_topics).astype(jnp.int32)

        if self.switch is not None:  # every sentence has a topic of its own
            even = Chain(
                jnp.ones((num_terms + 1, num_topics)), jnp.full(self.theta.shape, 1 / num_topics), jnp.ones(())
            )
            return of_sentences(*draw_sentences(key, even, batches), batches, num_topics, num_terms)
        of_positions = jax.vmap(partial(tokens_of_positions, positions=batches.terms.shape[1]))
        topics = drawn(*of_positions(batches.start, batches.depth, batches.rows))
        if batches.long is not None:
            long = drawn(*long_tokens(batches.long))
        return count(topics, batches, num_topics, num_terms, long, Labels.of(self.label, self.beta.shape))

    def log_prob(self, value: Assignments) -> jax.Array:
        if not self.counted:
            return jnp.zeros(())
        # a share that has underflowed to 0 and is counted 0 times has no slope, and 0 / 0 would be one
        theta, beta = jnp.maximum(self.theta, FLOOR), jnp.maximum(self.beta, FLOOR)
        words = xlogy(value.from_theta, theta).sum() + xlogy(value.topic_term, beta).sum()
        return words if self.switch is None else words + log_switches(value, self.batches, self.switch)


def log_switches(z: Assignments, batches: PaddedBatches, switch: jax.Array) -> jax.Array:
    """log p of the sentences that take a new topic: all but the first of a document may."""
    begun = (batches.lengths > 0).sum()
    new, could = ((part.sum() - begun).astype(jnp.float32) for part in (z.taken, batches.begins))
    return xlogy(new, switch) + xlog1py(could - new, -switch)


class AssignmentHandler(Messenger):
    """Answers ``draw_words`` with the site ``z``; zbar follows from its counts.

    ``counted=False`` leaves out the density of words and topics, for conditionals that do not depend on it.
    """

    def __init__(self, counted: bool = True) -> None:
        super().__init__(None)
        self.counted = counted

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "draw_words":
            return
        corpus, theta, beta, label, switch = msg["args"]
        z = numpyro.sample("z", TopicAssignments(theta, beta, corpus.batches, self.counted, label, switch))
        msg["value"] = mean_topics(z, corpus)
