"""Ratio tests: is every block's conditional the story's own?

A conditional p(x | rest) is right if log p(a | rest) - log p(b | rest) equals the difference of the story's explicit joint
log-density between a and b. No sampling is involved, so the test is exact up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import potential_energy
from scipy import sparse

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents

from ..blocks.augmented import AugmentedBlock
from ..blocks.block import Block
from ..blocks.topics import CollapsedBlock, TopicBlock
from ..kernels.assignments import count
from ..kernels.sentences import laid_sentences, log_draw, staying
from ..programs.compiling import jitted
from ..story.bound import BoundGraph
from ..story.classes import labels_of
from ..story.reader import bind
from ..story.reading import read
from ..story.sweeping import read_chain
from ..story.tracing import Data, Values, ZbarHandler, concentration, log_prob, run, total, traced
from ..story.validation import check_counts, check_seed
from .plan import Plan, choose_blocks
from .weighing import with_weight

TAKEN = "taken"  # beside z, where words of a sentence share their topic
TOLERANCE = 2e-3  # of float32 sums of some hundred terms


def check(
    story: str | Callable, corpus: Corpus, y: Any = None, *, seed: int = 0, num_documents: int = 4, num_tokens: int = 6,
    collapse: str = "proportions", response_weight: float = 1.0, **arguments: Any,
) -> pd.DataFrame:  # fmt: skip
    """Test every block that the Gibbs engine would use on a story against the story's own log-density.

    The test runs on a few documents cut to a few words. Returns one row a block: what served which sites, the number of
    comparisons, the largest error in log-density, and whether the block passes.
    """
    check_seed(seed)
    check_counts(num_documents=num_documents, num_tokens=num_tokens)
    whole = read(story, corpus, y, arguments)
    rows = np.linspace(0, len(corpus) - 1, min(num_documents, len(corpus))).astype(int)
    few = _shortened(corpus[rows], num_tokens)
    graph = with_weight(bind(whole.story, few, whole.response.take(rows)), response_weight)
    plan = choose_blocks(graph, collapse=collapse)
    tester = _Tester(graph, plan, seed)
    rows_out = [tester.test(block) for block in plan.blocks]
    if plan.by_nuts:
        rows_out.append(tester.test_nuts())
    return pd.DataFrame(rows_out)


def _shortened(corpus: Corpus, most: int) -> Corpus:
    """The same documents with at most some tokens each; the vocabulary stays."""
    if corpus.sentences is not None:  # from all over the document
        some = np.concatenate([first + np.unique(np.linspace(0, length - 1, min(most, length)).astype(int))
                               for first, length in zip(corpus.sentences.ends, corpus.lengths, strict=False)])  # fmt: skip
        parts = corpus.sentences.terms[some], corpus.sentences.numbers[some]
        lengths = np.minimum(corpus.lengths, most)
        rows = np.repeat(np.arange(len(corpus)), lengths)
        counts = sparse.csr_array((np.ones(len(rows), int), (rows, parts[0])), shape=corpus.counts.shape)
        short = Corpus.from_counts(counts, corpus.vocabulary, names=corpus.names, covariates=corpus.covariates)
        return short.with_sentences(*parts)
    document, term = corpus.tokens()
    order = np.random.default_rng(0).permutation(len(document))
    document, term = document[order], term[order]
    rank = pd.Series(document).groupby(document).cumcount().to_numpy()
    keep = rank < most
    counts = sparse.csr_array(
        (np.ones(keep.sum(), int), (document[keep], term[keep])),
        shape=(corpus.num_documents, corpus.num_terms),
    )
    return Corpus.from_counts(counts, corpus.vocabulary, names=corpus.names, covariates=corpus.covariates)


class _Tester:
    def __init__(self, graph: BoundGraph, plan: Plan, seed: int) -> None:
        self.graph, self.plan = graph, plan
        y = graph.response.on_device()
        self.explicit = Data(documents(graph.corpus, pairs=True, tokens=True), y)
        self.data = Data(documents(graph.corpus, pairs=not graph.has_words, batches=graph.has_words), y)
        keys = jax.random.split(jax.random.key(seed), 2)
        feasible = jitted(self._feasible, once=True)
        self.here, self.there = feasible(keys[0]), feasible(keys[1])
        self.joint, self.laid = jitted(self._joint, once=True), jitted(self._laid, once=True)

    def _feasible(self, key: jax.Array) -> dict[str, Any]:
        """Some value of every site; a topic that cannot have made its word gives way to the likeliest."""
        trace = run(self.graph.story, *self.explicit, {}, key=key)
        values = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        if not self.graph.has_words:
            return values
        answer, (document, term) = ZbarHandler(lambda theta: theta), self.explicit.documents.tokens()
        run(self.graph.story, *self.explicit, {n: value for n, value in values.items() if n != "z"}, answer)
        beta = answer.beta[None] if answer.label is None else answer.beta[answer.label[document]]
        chances = answer.theta[document] * jnp.take_along_axis(beta, term[:, None, None], -1)[..., 0]
        own = jnp.take_along_axis(chances, values["z"][:, None], -1)[:, 0]
        return {**values, "z": jnp.where(own > 0, values["z"], chances.argmax(-1).astype(values["z"].dtype))}

    def _joint(self, values: Values) -> jax.Array:
        """The story's explicit log-density, every z and w a site of its own; one number a site.

        Differences are taken site by site: what has not moved then cancels exactly, however large it is.
        """
        trace = run(self.graph.story, *self.explicit, values)
        return jnp.stack([log_prob(site).sum() for site in trace.values() if site["type"] == "sample"])

    def _laid(self, values: Values) -> Values:
        """The same values with z laid out as the engine has it."""
        if not self.graph.has_words:
            return values
        batches = self.data.documents.laid_out
        topics = jnp.zeros(batches.terms.shape, jnp.int32).at[batches.positions()].set(values["z"])
        graph, labels = self.graph, labels_of(self.graph, *self.data, values)
        if graph.has_sentences:
            others = {name: value for name, value in values.items() if name != TAKEN}
            found = laid_sentences(values["z"], values[TAKEN], batches, graph.num_topics, graph.corpus.num_terms)
            return {**others, "z": found}
        return {**values, "z": count(topics, batches, graph.num_topics, graph.corpus.num_terms, labels=labels)}

    def _row(self, label: str, sites: Any, errors: list[float], scale: float) -> dict:
        largest = float(np.max(errors))
        return {
            "block": label, "sites": ", ".join(sites), "comparisons": len(errors), "largest_error": largest,
            "passes": bool(largest <= TOLERANCE * max(1.0, scale)),
        }  # fmt: skip

    def test(self, block: Block) -> dict:
        if isinstance(block, TopicBlock | CollapsedBlock):
            return self._test_topics(block)
        if isinstance(block, AugmentedBlock):
            return self._test_augmented(block)
        conditional = jitted(lambda new, values: block.log_conditional(new, values, self.data), once=True)
        joint, errors, scale = self.joint, [], 0.0
        if out := getattr(block, "integrated_out", ()):
            marginal = self._marginal(out)
            joint = jitted(lambda values: marginal(values, values["z"]), once=True)
        for values, other in ((self.here, self.there), (self.there, self.here)):
            moved = {**values, **{site: other[site] for site in block.sites}}
            laid = self.laid(values)
            found = conditional({site: moved[site] for site in block.sites}, laid)
            found = found - conditional({site: values[site] for site in block.sites}, laid)
            expected = (joint(moved) - joint(values)).sum()
            errors.append(abs(float(found - expected)))
            scale = max(scale, abs(float(expected)))
        return self._row(block.label, block.sites, errors, scale)

    def _test_augmented(self, block: AugmentedBlock) -> dict:
        """As above, with the auxiliary variables' own law in the ratio."""

        @jitted(once=True)
        def compare(column: Any, values: Values, other: Values) -> tuple[jax.Array, jax.Array]:
            moved = block.moved(values, other, column)
            found = block.log_ratio(column, self._laid(values), self._laid(moved), self.data)
            return found, (self._joint(moved) - self._joint(values)).sum()

        errors, scale = [], 0.0
        for values, other in ((self.here, self.there), (self.there, self.here)):
            for column in range(block.columns):
                found, expected = compare(column, values, other)
                errors.append(abs(float(found - expected)))
                scale = max(scale, abs(float(expected)))
        return self._row(block.label, block.sites, errors, scale)

    def _test_sentences(self, block: TopicBlock) -> dict:
        """Topics of sentences given all but the response: two draws of them, and theta given each."""

        @jitted(once=True)
        def both(values: Values) -> tuple[jax.Array, jax.Array]:
            laid, batches = self._laid(values), self.data.documents.laid_out
            found = log_draw(read_chain(self.graph, *self.data, laid), batches, laid["z"])
            trace = run(self.graph.story, *self.explicit, values)
            return found, total(trace, ["z", TAKEN, "w"])

        moved = {**self.here, "z": self.there["z"], TAKEN: self.there[TAKEN]}
        (found, expected), (before, now) = both(moved), both(self.here)
        return self._row(block.label, block.sites, [abs(float(found - before - expected + now))], abs(float(expected)))

    def _test_topics(self, block: TopicBlock | CollapsedBlock) -> dict:
        """Every token's topic: the joint is tried at each of the K topics."""
        if self.graph.has_sentences:
            return self._test_sentences(cast(TopicBlock, block))
        document, _ = map(np.asarray, self.explicit.documents.tokens())
        weights = jitted(lambda values, d, n: block.token_weights(values, self.data, d, n), once=True)
        num_topics = self.graph.num_topics
        assert num_topics is not None
        marginal = jitted(jax.vmap(self._marginal(block.sites), in_axes=(None, 0)), once=True)
        errors = []
        laid = self.laid(self.here)
        for token in range(document.size):
            candidates = jnp.tile(self.here["z"], (num_topics, 1)).at[:, token].set(jnp.arange(num_topics))
            expected = marginal(self.here, candidates)
            found = weights(laid, int(document[token]), int(token - np.searchsorted(document, document[token])))
            gap = (found - found.max()) - (expected - expected[found.argmax()]).sum(-1)
            errors.append(float(jnp.abs(jnp.where(found - found.max() > -20, gap, 0.0)).max()))
        return self._row(block.label, block.sites, errors, 1.0)

    def _marginal(self, sites: Sequence[str]) -> Callable:
        """log p(z, w, y, rest) with some Dirichlet sites integrated out: joint minus their exact conditional."""
        graph = self.graph

        def marginal(values: Values, z: jax.Array) -> jax.Array:
            values = {**values, "z": z}
            joint = self._joint(values)
            trace = run(graph.story, *self.explicit, values)
            document, term = self.explicit.documents.tokens()
            for site in sites:
                if site == "z":
                    continue
                own, taken = staying(z, values[TAKEN]) if graph.has_sentences else (z, 1.0)
                rows, columns, number = (document, z, taken) if site == graph.theta else (own, term, 1.0)
                counts = jnp.zeros(values[site].shape).at[rows, columns].add(number)
                posterior = dist.Dirichlet(counts + concentration(trace[site]["fn"]))
                joint = jnp.append(joint, -posterior.log_prob(values[site]).sum())
            return joint

        return marginal

    def test_nuts(self) -> dict:
        """NUTS' potential, in its unconstrained space, must move as the joint and the Jacobians do."""
        sites = self.plan.by_nuts
        transforms = {site: biject_to(self.graph.latent[site].fn.support) for site in sites}

        @jitted(once=True)
        @traced
        def both(values: Values) -> tuple[jax.Array, jax.Array]:
            given = {name: value for name, value in self._laid(values).items() if name not in sites}
            free = {site: transform.inv(values[site]) for site, transform in transforms.items()}
            model = handlers.condition(self.plan.model(), given)
            jacobian = [t.log_abs_det_jacobian(free[site], values[site]).sum() for site, t in transforms.items()]
            seen = -potential_energy(model, self.data, {}, free)
            return seen, jnp.append(self._joint(values), jnp.sum(jnp.stack(jacobian)))

        moved = {**self.here, **{site: self.there[site] for site in sites}}
        (found, expected), (found_here, expected_here) = both(moved), both(self.here)
        found, expected = found - found_here, (expected - expected_here).sum()
        return self._row("NUTS given the rest", self.plan.by_nuts, [abs(float(found - expected))], abs(float(expected)))
