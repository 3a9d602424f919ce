"""Corpora simulated from a story, and an engine run on any number of them by one compiled program.

Simulated corpora have the document lengths of a given one, so that all have one shape and data are mere arguments. This
is what calibration needs: hundreds of fits of tiny corpora in the time of compiling one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import NUTS, SVI, TraceMeanField_ELBO
from numpyro.optim import Adam
from numpyro.primitives import Messenger
from scipy import sparse

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, Pairs, documents
from topiczoo.models.catalogue import as_story
from topiczoo.models.vocabulary.words import BagOfWords

from .kernels.assignments import count
from .kernels.sentences import laid_sentences, staying
from .marginal.guides import Guide
from .marginal.model import Marginal
from .marginal.nuts_engine import NODES
from .marginal.proportions import is_part, parts_given
from .marginal.svi_engine import NODES as SVI_NODES
from .marginal.svi_engine import learning_rates
from .mcmc.plan import choose_blocks
from .programs.compiling import jitted
from .story.bound import BoundGraph
from .story.classes import labels_of
from .story.reader import bind
from .story.response import Response
from .story.tracing import Story, ZbarHandler, base_distribution, run, traced
from .story.validation import check_corpus, check_seed

ENGINES = ("gibbs", "nuts", "svi")


class Simulated(NamedTuple):
    """A draw of everything from a story: latent values (topics included), the term of every token, and the response."""

    values: dict[str, jax.Array]
    terms: jax.Array
    y: Any


class Simulation:
    """A story drawn on documents of the lengths, covariates and number of terms of a corpus; its words are not used."""

    def __init__(self, story: str | Callable, corpus: Corpus, arguments: dict[str, Any]) -> None:
        self.story = Story(as_story(story), arguments, masked=False)
        self.lengths, self.num_terms = corpus.lengths, corpus.num_terms
        self.num_tokens = int(self.lengths.sum())
        self.document = np.repeat(np.arange(len(corpus)), self.lengths).astype(np.int32)
        self.layout, self.sentences = documents(corpus, batches=True), corpus.sentences
        self.positions = self.layout.laid_out.positions()
        self.responses = self._find_responses(corpus)

    def corpus(self, terms: Any, like: Corpus) -> Corpus:
        """Simulated words as a Corpus."""
        counts = sparse.csr_array(
            (np.ones(self.num_tokens, int), (self.document, np.asarray(terms))), shape=(len(like), self.num_terms)
        )
        drawn = Corpus.from_counts(counts, like.vocabulary, names=like.names, covariates=like.covariates)
        return drawn if self.sentences is None else drawn.with_sentences(terms, self.sentences.numbers)

    def _find_responses(self, corpus: Corpus) -> list[str]:
        graph = bind(self.story, corpus)
        if not self.story.takes_y:
            return []
        found = [
            name for name, site in graph.latent.items()
            if site.document_axis is not None and graph.children([name]) == {name} and not graph.drives_words([name])
        ]  # fmt: skip
        above = any(site.discrete and site.document_axis is not None for site in graph.latent.values())
        if found or not above:  # without a class the story, as it is told, has no response
            return found
        given = bind(self.story, corpus, Response.of(corpus, np.zeros(len(corpus))))
        found = [name for name in graph.latent if name not in given.latent]
        if not found:
            raise ValueError(
                f"The story {self.story.name!r} takes y but has no site of documents that nothing reads, to be its "
                "response."
            )
        return found

    def documents(self, terms: jax.Array) -> Documents:
        """Simulated words laid out for every engine."""
        batches = self.layout.laid_out
        laid = jnp.full(batches.terms.shape, self.num_terms, jnp.int32).at[self.positions].set(terms)
        document = jnp.asarray(self.document)
        return replace(
            self.layout, batches=batches._replace(terms=laid), token_document=document, token_term=terms,
            pairs=Pairs(document, terms, jnp.ones(self.num_tokens)),
            token_begins=None if self.sentences is None else jnp.asarray(self.sentences.begins),
        )  # fmt: skip

    def simulate(self, key: jax.Array, values: dict[str, jax.Array] | None = None) -> Simulated:
        """Everything drawn from the story, or given all latent values the words and the response."""
        skeleton = self.documents(jnp.zeros(self.num_tokens, jnp.int32))
        trace = run(self.story, skeleton, None, values or {}, _FreeWords(self.document), key=key, prior=True)
        drawn = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        terms = drawn.pop("w")
        if self.sentences is not None and "taken" in drawn:  # z is the topic of each word, as an engine has it
            drawn["z"], drawn["taken"] = staying(drawn["z"], drawn["taken"])
        parts = {name: drawn.pop(name) for name in self.responses}
        y = None if not parts else next(iter(parts.values())) if len(parts) == 1 else parts
        return Simulated(drawn, terms, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), y))


def simulate(
    story: str | Callable, corpus: Corpus, *, seed: int = 0, **arguments: Any
) -> tuple[Corpus, np.ndarray | dict[str, np.ndarray] | None]:
    """Draw documents and responses from a story: topics, coefficients and all else from the priors, then words and y.

    Parameters
    ----------
    story, arguments
        The story and its keyword arguments.
    corpus
        Says how many documents there are, how long they are, their names, covariates and vocabulary; its words are not used.

    Returns
    -------
    The documents, and their response: an array, one of each name where the story has several, None where it has none.
    """
    check_seed(seed)
    check_corpus(corpus)
    simulation = Simulation(story, corpus, arguments)
    drawn = jitted(simulation.simulate, once=True)(jax.random.key(seed))
    return simulation.corpus(drawn.terms, corpus), jax.tree.map(np.asarray, drawn.y)


class Trials(Simulation):
    """A story on corpora of one shape.

    Parameters
    ----------
    story, arguments
        The story and its keyword arguments.
    corpus
        Its document lengths, number of terms and covariates are used; its words are not.
    engine
        ``"gibbs"``, ``"nuts"`` or ``"svi"``.
    collapse
        As in ``gibbs``.
    step_size
        Of NUTS before it adapts; without warm-up, as in Geweke's test, for good.
    """

    def __init__(
        self, story: str | Callable, corpus: Corpus, *, engine: str = "gibbs", collapse: str = "proportions",
        step_size: float = 0.5, num_steps: int = 2000, **arguments: Any,
    ) -> None:  # fmt: skip
        if engine not in ENGINES:
            raise ValueError(f"engine is {engine!r}; give one of {', '.join(map(repr, ENGINES))}.")
        super().__init__(story, corpus, arguments)
        self.engine, self.spread = engine, list[str]()
        first = jitted(self.simulate, once=True)(jax.random.key(0))
        y = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), first.y)
        parts = {"y": y} if isinstance(y, np.ndarray) else y or {}
        self.graph = bind(self.story, self.corpus(first.terms, corpus), Response(parts, isinstance(y, dict)))
        if engine == "gibbs":
            self.kernel: Any = choose_blocks(self.graph, collapse=collapse).kernel()
        elif engine == "nuts":
            # short trees: chains run side by side wait for the longest
            model = Marginal(self.graph, nodes=NODES, average="density")
            self.spread = model.spread
            self.kernel = NUTS(
                model, step_size=step_size,
                find_heuristic_step_size=False, target_accept_prob=0.9, max_tree_depth=6,
            )  # fmt: skip
        else:
            self.kernel = _Approximation(self.graph, num_steps)

    @traced
    def start(self, key: jax.Array, simulated: Simulated, num_warmup: int = 0, at_truth: bool = False) -> Any:
        """A chain's state on simulated data: at a start of the engine's own, or at the values that made the data."""
        data = self.documents(simulated.terms), simulated.y
        params = self._params(key, simulated, data[0]) if at_truth else None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*already stores a value")
            return self.kernel.init(key, num_warmup, params, data, {})

    @traced
    def step(self, state: Any, simulated: Simulated) -> Any:
        return self.kernel.sample(state, (self.documents(simulated.terms), simulated.y), {})

    @traced
    def values(self, state: Any, simulated: Simulated) -> dict[str, jax.Array]:
        """The latent values of a state; topics of words as one number a token."""
        data = self.documents(simulated.terms), simulated.y
        values = dict(self.kernel.get_constrain_fn(data, {})(state.z))
        if self.spread:
            made = self.kernel.postprocess_fn(data, {})(state.z)
            values = {name: value for name, value in values.items() if not is_part(name)}
            values |= {site: made[site] for site in self.spread}
        if self.engine == "gibbs" and self.graph.has_words:
            z = values["z"]
            values["z"] = z.topics[self.positions]
            values |= {} if z.taken is None else {"taken": z.taken[self.positions]}
        return values

    def _params(self, key: jax.Array, simulated: Simulated, corpus: Documents) -> dict[str, Any]:
        """Values as the kernel takes them: unconstrained for NUTS, topics with their counts."""
        values = dict(simulated.values)
        by_nuts = set(self.graph.latent) if self.engine == "nuts" else set(self._nuts_sites())
        params: dict[str, Any] = {}
        if self.spread:
            trace = run(self.story, corpus, simulated.y, values, ZbarHandler(lambda theta: theta))
        for number, site in enumerate(self.spread):
            given = values.pop(site), base_distribution(trace[site]["fn"]).concentration
            parts = parts_given(jax.random.fold_in(key, number), site, *given)
            params |= {name: jnp.log(part) for name, part in parts.items()}
        for name, value in values.items():
            if name == "z" and self.graph.has_words:
                if self.engine == "gibbs":
                    batches = corpus.laid_out
                    topics = jnp.zeros(batches.terms.shape, jnp.int32).at[self.positions].set(value)
                    if self.graph.has_sentences:
                        shape = self.graph.num_topics, self.num_terms
                        params["z"] = laid_sentences(value, values["taken"], batches, *shape)
                        continue
                    labels = labels_of(self.graph, corpus, simulated.y, values)
                    params["z"] = count(topics, batches, self.graph.num_topics, self.num_terms, labels=labels)
            elif name == "taken" and self.graph.has_sentences:
                continue
            elif name not in by_nuts:
                params[name] = value
            elif not self.graph.latent[name].discrete:
                params[name] = biject_to(self.graph.latent[name].fn.support).inv(value)
        return params

    def _nuts_sites(self) -> list[str]:
        return [site for kernel, sites in self.kernel.blocks if isinstance(kernel, NUTS) for site in sites]


class _FreeWords(Messenger):
    """Makes the words of a story unobserved: they are drawn, token by token."""

    def __init__(self, document: np.ndarray) -> None:
        super().__init__(None)
        self.document = document

    def process_message(self, msg: dict) -> None:
        if msg["type"] != "sample" or msg["name"] != "w":
            return
        msg["value"], msg["is_observed"] = None, False
        if isinstance(msg["fn"], BagOfWords):
            fn = msg["fn"]
            logits = jnp.log(fn.beta)[fn.z[self.document]]
            msg["fn"], msg["cond_indep_stack"] = dist.Categorical(logits=logits), []


class _Drawn(NamedTuple):
    z: dict[str, jax.Array]
    parameters: dict[str, jax.Array]
    rng_key: jax.Array


class _Approximation:
    """SVI in the shape of a kernel: ``init`` fits the guide, ``sample`` draws from it."""

    def __init__(self, graph: BoundGraph, num_steps: int, learning_rate: float = 0.05) -> None:
        model, self.guide, self.num_steps = (
            Marginal(graph, nodes=SVI_NODES, average="log"),
            Guide(graph, "mean_field", 0),
            num_steps,
        )
        self.rows = jnp.arange(len(graph.corpus))
        self.svi = SVI(
            model, lambda documents, y: self.guide(documents, y, self.rows, 1.0),
            Adam(learning_rates(learning_rate, num_steps)), TraceMeanField_ELBO(),
        )  # fmt: skip

    def init(self, key: jax.Array, num_warmup: int, params: Any, data: tuple, kwargs: dict) -> _Drawn:
        state = self.svi.init(key, *data)
        state = jax.lax.fori_loop(0, self.num_steps, lambda _, state: self.svi.update(state, *data)[0], state)
        return self.sample(_Drawn({}, self.svi.get_params(state), key), data, {})

    def sample(self, state: _Drawn, data: tuple[Documents, Any], kwargs: dict) -> _Drawn:
        key, draw_key = jax.random.split(state.rng_key)
        with handlers.substitute(data=state.parameters), handlers.trace() as trace, handlers.seed(rng_seed=draw_key):
            self.guide(*data, self.rows, 1.0)
        drawn = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        return _Drawn(drawn, state.parameters, key)

    def get_constrain_fn(self, data: tuple, kwargs: dict) -> Callable:
        return lambda z: z
