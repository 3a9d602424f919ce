"""A block of the Gibbs engine: a kernel that draws some sites given all others, and the registry of their kinds.

No block knows a model. A conditional is derived from the story's own log-density (:func:`log_density_of`), and a block is
used only for sites for which the derivation was found to hold (``recognise``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity

from topiczoo.corpora.layouts import few_documents

from ..programs.keeping import Unkeyed, frozen
from ..story.assignments import AssignmentHandler
from ..story.bound import BoundGraph
from ..story.tracing import Data, Values, run, total
from .whitened import whitened

Kind = TypeVar("Kind", bound="type[Block]")
_REGISTERED: list[type[Block]] = []  # by users, the last first


class BlockState(NamedTuple):
    """The block's values, the running sums of their conditional means (for averaged sites), a key, and statistics."""

    z: dict[str, Any]
    total: dict[str, jax.Array]
    rng_key: jax.Array
    statistics: dict[
        str, jax.Array
    ]  # of the whole state after the last draw that is kept; empty but for the last block
    turn: Any = 0  # draws since the running sums began


class Block(MCMCKernel):
    """A kernel of ``numpyro.infer.Gibbs`` that owns ``sites``; subclasses say how they are drawn."""

    sample_field = "z"
    label = ""
    records = False  # whether this block, drawn last, records statistics of the whole state
    thinning = 1  # every so many draws one is kept: what nothing but a kept draw needs is left out of the others
    recorded: tuple[str, ...] = ("lp", "usage")  # which ones
    integrated: Sequence[Any] = ()  # Dirichlet blocks whose sites are integrated out of the recorded log density
    grouped = False  # whether several sites may be drawn together
    averages = False  # whether it sums up what it draws
    averaged: tuple[
        str, ...
    ] = ()  # sites of other blocks, of which no draws are kept, that this one, drawn last, sums up
    counted: jax.Array | None = None  # how far the responses of documents count here, where that differs, [D]

    def __init__(self, graph: BoundGraph, sites: Sequence[str]) -> None:
        self._model: Callable | None = None
        self.graph, self.sites = graph, tuple(sites)

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """A block for these sites, if their conditional is one that this kind knows; tried out on a few documents."""
        raise NotImplementedError

    @property
    def form(self) -> Hashable:
        """All that it depends on but for documents and numbers of the story; None for a kind that a user has written."""
        if not type(self).__module__.startswith("topiczoo."):
            return None
        try:
            return type(self), frozen({name: value for name, value in vars(self).items() if name != "_model"})
        except Unkeyed:
            return None

    def bare(self) -> Self:
        """The same for a program that is kept."""
        block = copy.copy(self)
        block.graph = self.graph.bare()
        return block

    @property
    def model(self) -> Callable | None:
        return self._model

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        """New values of the block's sites given all values, and the conditional means worth averaging."""
        raise NotImplementedError

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        """log p(new | all other values), for checking against the story."""
        raise NotImplementedError

    def init(
        self, rng_key: Any, num_warmup: int, init_params: Any, model_args: tuple, model_kwargs: dict
    ) -> BlockState:
        values = {**model_kwargs[GIBBS_SITES_KWARG], **init_params}
        new, means, statistics = jax.eval_shape(self._kept, rng_key, values, Data(*model_args))
        # a draw may be stored in another type than the prior's start value (weak types, integers)
        start = {k: jax.tree.map(lambda v, like: jnp.asarray(v, like.dtype), init_params[k], new[k]) for k in new}
        zeros = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), (means, statistics))
        return BlockState(start, zeros[0], rng_key, zeros[1], jnp.zeros((), jnp.int32))

    def sample(self, state: BlockState, model_args: tuple, model_kwargs: dict) -> BlockState:
        rng_key, key = jax.random.split(state.rng_key)
        values, data, turn = {**model_kwargs[GIBBS_SITES_KWARG], **state.z}, Data(*model_args), state.turn + 1
        if self.thinning == 1:
            new, means, statistics = self._kept(key, values, data)
        else:
            is_kept = turn % self.thinning == 0
            new, means = self.draw_unless(~is_kept, key, values, self.given(data))
            means = self._and_averaged(means, values)
            statistics = state.statistics
            if self.records:
                recorded = partial(self.record, {**values, **new}, values, data)
                statistics = jax.lax.cond(is_kept, recorded, lambda: state.statistics)
        total = {name: state.total[name] + mean for name, mean in means.items()}
        return BlockState(new, total, rng_key, statistics, turn)

    def _kept(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict, dict]:
        """A draw that is kept."""
        new, means = self.draw(key, values, self.given(data))
        recorded = self.record({**values, **new}, values, data) if self.records else {}
        return new, self._and_averaged(means, values), recorded

    def _and_averaged(self, means: dict, values: Values) -> dict:
        return {**means, **{name: values[name] for name in self.averaged}}

    def draw_unless(self, passing: jax.Array, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        """The same as ``draw``, which may leave out what only a kept draw needs where this one is ``passing``."""
        return self.draw(key, values, data)

    def given(self, data: Data) -> Data:
        """The data as the block draws given them."""
        if self.counted is None:
            return data
        return data._replace(documents=replace(data.documents, counted=self.counted))

    def record(self, values: Values, before: Values, data: Data) -> dict[str, jax.Array]:
        """Statistics of the whole state, and of the step from the values before."""
        raise NotImplementedError

    def refresh(self, state: BlockState, model_args: tuple, model_kwargs: dict | None) -> BlockState:
        return state

    def wrap_model(self, wrapper: Callable) -> Block:
        kernel = copy.copy(self)
        kernel._model = wrapper(self._model)
        return kernel

    def get_constrain_fn(self, model_args: tuple, model_kwargs: dict | None) -> Callable:
        return identity

    def postprocess_fn(self, model_args: tuple, model_kwargs: dict | None) -> Callable:
        return identity


def log_density_of(graph: BoundGraph, sites: Sequence[str], values: Values, data: Data) -> Callable[[dict], jax.Array]:
    """The part of the story's log-density that some sites enter, as a function of their values."""
    counted = graph.drives_words(sites)
    parts = sorted(graph.children(sites)) + ["z"] * counted

    def log_density(new: Values) -> jax.Array:
        trace = run(whitened(graph.story), *data, {**values, **new}, AssignmentHandler(counted))
        return total(trace, parts)

    return log_density


class Few(NamedTuple):
    """A few documents with values for every site, z included: where conjugacy is tried out."""

    data: Data
    values: dict[str, Any]


def few(graph: BoundGraph) -> Few:
    """The graph's few documents with their words laid out and random topics."""
    laid = few_documents(graph.few_corpus, batches=True)
    data = Data(replace(laid, arguments=graph.story.given), graph.few_y)
    values = dict(graph.few_values)
    if graph.has_words:
        values["z"] = graph.program(_random_topics)(data, values)
    return Few(data, values)


def _random_topics(graph: BoundGraph, data: Data, values: Values) -> Any:
    return run(graph.story, *data, values, AssignmentHandler(), key=jax.random.key(2))["z"]["value"]


def register_block(kind: Kind) -> Kind:
    """Have the Gibbs engine ask a kind of block of yours, before its own, whether it serves a site.

    A kind is a subclass of :class:`Block` with ``label``, ``recognise``, ``draw`` and ``log_conditional``. It can be used
    as a decorator. :func:`inference.check` compares it with the story's density, like the built-in ones.
    """
    if not (isinstance(kind, type) and issubclass(kind, Block)):
        raise TypeError(f"kind is {kind!r}; give a subclass of inference.Block.")
    for name in ("recognise", "draw", "log_conditional"):
        if not any(name in vars(parent) for parent in kind.__mro__[: kind.__mro__.index(Block)]):
            raise TypeError(f"The block {kind.__name__!r} has no {name} of its own; inference.Block says what it does.")
    unregister_block(kind)
    _REGISTERED.insert(0, kind)
    return kind


def unregister_block(kind: type[Block]) -> None:
    """Forget a registered kind of block."""
    if kind in _REGISTERED:
        _REGISTERED.remove(kind)


def registered_blocks() -> tuple[type[Block], ...]:
    """The kinds that users have registered, in the order in which they are asked."""
    return tuple(_REGISTERED)
