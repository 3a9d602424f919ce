"""Running a story: with given values, with an answer to draw_words, and with missing responses masked."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import os
import threading
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from platform import machine
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.infer.initialization import init_to_mean, init_to_uniform
from numpyro.infer.util import helpful_support_errors
from numpyro.primitives import Messenger

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents
from topiczoo.models.catalogue import as_story
from topiczoo.models.vocabulary.words import Zbar

from ..programs.compiling import jitted
from ..programs.keeping import Unkeyed, frozen, keep, shapes
from .response import Y

Values = Mapping[str, Any]
TRACING = threading.RLock()  # NumPyro's stack of handlers is one for all threads: hold this while a story is traced
GIVEN = "given"  # what a site is given of y, in its message's "infer"
_traced_in: int | None = None  # the process that has traced a story, and so used JAX


def traced(function: Callable) -> Callable:
    """A function for ``jax.jit`` under whose handlers a story runs: one thread at a time traces, all may run it."""

    @functools.wraps(function)
    def alone(*arguments: Any, **named: Any) -> Any:
        with TRACING, precise():
            return function(*arguments, **named)

    alone.__name__ = getattr(getattr(function, "func", function), "__name__", "alone")  # as profiles show it
    return alone


def program(function: Callable, *fixed: Any, once: bool = False) -> Callable:
    """``function(*fixed, ...)`` compiled as a function of the rest, and kept for what is fixed alike.

    What is fixed must not hold a corpus or the numbers of a story: a graph among it is a bare one.
    """

    def make(form: Hashable = None) -> Callable:
        return jitted(traced(functools.partial(function, *fixed)), once=once, form=form)

    try:
        key = function, frozen(fixed), once
    except Unkeyed:
        return make()
    return keep(key, lambda: make(key))


def precise() -> Any:
    """Products of float32 matrices are float32: a GPU would round what goes into them to eleven bits."""
    return nullcontext() if jax.default_backend() == "cpu" else jax.default_matmul_precision("highest")


def circumstances() -> dict[str, Any]:
    """What draws depend on beside the seed, and the number of devices, on which they do not."""
    packages = {name: version(name) for name in ("topiczoo", "jax", "numpyro", "numpy")}
    return {"platform": f"{jax.default_backend()}, {machine()}", "devices": jax.device_count(), "versions": packages}


def refuse_forked() -> None:
    """JAX has threads, and a forked process has none of them: it would wait for them for ever."""
    if _traced_in not in (None, os.getpid()):
        raise RuntimeError(
            "This process was forked from one that had used JAX, whose threads it does not have; start it with "
            "multiprocessing.get_context('spawn')."
        )


@dataclass(frozen=True, eq=False)
class Story:
    """A story with its keyword arguments bound: ``story(corpus, y)``.

    ``masked``: responses may be missing (NaN), and are then masked; masks cost time, so whoever knows that none is says so.
    ``weight``: the power of the likelihood of the sites in ``weighed``, of which the axis of documents is given.
    ``numbers``: arguments, defaults among them, that the story does nothing but compute with. Documents for compiled code
    bring them along, so that it holds none and serves others as well.
    """

    function: Callable
    arguments: dict[str, Any]
    masked: bool = True
    weight: float = 1.0
    weighed: Mapping[str, int] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    bare: bool = False  # whether its numbers come with the documents alone

    def __post_init__(self) -> None:
        refuse_forked()
        object.__setattr__(self, "function", as_story(self.function))
        for name in self.arguments:
            if name not in self.known and not self.open_ended:
                raise TypeError(
                    f"{name!r} is no argument of the story {self.name!r}; it takes {', '.join(self.known)}."
                )
        for name in self.known:
            p = self.parameters[name]
            if name not in self.arguments and p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                raise TypeError(f"{name!r} is missing, and the story {self.name!r} needs it; give it as {name}=... .")
        # a list of numbers, one a topic say, as the array that stories compute with
        arrays = {name: np.asarray(value) if _is_numbers(value) else value for name, value in self.arguments.items()}
        object.__setattr__(self, "arguments", arrays)

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def open_ended(self) -> bool:
        """Whether the story takes keyword arguments of any name."""
        return any(p.kind is p.VAR_KEYWORD for p in self.parameters.values())

    @property
    def known(self) -> list[str]:
        """The names of its keyword arguments."""
        names = [name for name in self.parameters if name not in ("corpus", "y")]
        return names[0 if "corpus" in self.parameters else 1 :]

    @property
    def takes_y(self) -> bool:
        return "y" in self.parameters

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: p.default for name, p in self.parameters.items() if p.default is not p.empty}

    def with_arguments(self, **changed: Any) -> Story:
        """The same story with some arguments changed."""
        return replace(self, arguments={**self.arguments, **changed}, numbers=())

    @property
    def given(self) -> dict[str, Any]:
        """The numbers that documents bring along."""
        known = {**self.defaults, **self.arguments}
        return {name: known[name] for name in self.numbers}

    @cached_property
    def form(self) -> Hashable:
        """All that it depends on but for its numbers; None where that cannot be told."""
        others = {name: value for name, value in self.arguments.items() if name not in self.numbers}
        try:
            return (
                self.function, frozen(others), self.numbers, shapes(self.given), self.masked, self.weight,
                frozen(dict(self.weighed)),
            )  # fmt: skip
        except Unkeyed:
            return None

    def without_numbers(self) -> Story:
        """The story for a program that is kept: documents that bring no numbers along are refused."""
        story = copy.copy(self)
        others = {name: value for name, value in self.arguments.items() if name not in self.numbers}
        object.__setattr__(story, "arguments", others)
        object.__setattr__(story, "bare", True)
        return story

    def without_weights(self) -> Story:
        """The story with its responses at power 1."""
        story = copy.copy(self)
        object.__setattr__(story, "weighed", {})
        return story

    def plain(self, corpus: Documents | Corpus, y: Y = None) -> None:
        """The user's function: nothing is masked or weighed."""
        brought = getattr(corpus, "arguments", {})
        if self.bare and not set(self.numbers) <= set(brought):
            raise RuntimeError(f"A program of the story {self.name!r} was given documents without the story's numbers.")
        arguments = {**self.arguments, **{name: brought[name] for name in self.numbers if name in brought}}
        if self.takes_y:
            self.function(corpus, y, **arguments)
        else:
            self.function(corpus, **arguments)

    def __call__(self, corpus: Documents | Corpus, y: Y = None) -> None:
        with _Weighed(self, getattr(corpus, "counted", None)), _Unlabelled(self.masked):
            self.plain(corpus, y)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, int | float) for part in value)


class _Unlabelled(Messenger):
    """Observed values that are NaN count as not observed: their density is masked."""

    def __init__(self, present: bool) -> None:
        super().__init__(None)
        self.present = present

    def process_message(self, msg: dict) -> None:
        if msg["type"] != "sample" or not msg["is_observed"] or not hasattr(msg["value"], "dtype"):
            return
        value, fn = jnp.asarray(msg["value"]), msg["fn"]
        msg["infer"] = {**(msg["infer"] or {}), GIVEN: value}  # as it is, NaN and all
        if not jnp.issubdtype(value.dtype, jnp.floating) or isinstance(fn, dist.Unit):
            return
        if self.present:
            labelled = ~jnp.isnan(value)
            msg["fn"] = fn.mask(labelled.all(axis=tuple(range(-fn.event_dim, 0))) if fn.event_dim else labelled)
        if fn.support is not None and fn.support.is_discrete:
            value = jnp.where(jnp.isnan(value), 0, value).astype(jnp.int32)
        msg["value"] = value


class _Weighed(Messenger):
    """The likelihood of responses to a power, which may differ by document."""

    def __init__(self, story: Story, counted: jax.Array | None) -> None:
        super().__init__(None)
        self.story, self.counted = story, counted

    def process_message(self, msg: dict) -> None:
        if msg["type"] != "sample" or msg["name"] not in self.story.weighed:
            return
        weight: Any = self.story.weight
        if self.counted is not None:
            weight = weight * self.counted.reshape(-1, *[1] * (-1 - self.story.weighed[msg["name"]]))
        msg["scale"] = weight if msg["scale"] is None else weight * msg["scale"]


class Data(NamedTuple):
    """Documents laid out, and their responses, as compiled code is given them and a story takes them."""

    documents: Documents
    y: Y


class ZbarHandler(Messenger):
    """Answers ``draw_words`` with a zbar that is given, and remembers what the story asked of it.

    Parameters
    ----------
    zbar
        [documents, topics], or a function of theta that makes one.
    predictors
        What ``zbar @ eta`` shall be, in the order in which the story asks; by default the product itself.
    """

    def __init__(self, zbar: Any = None, predictors: Sequence[jax.Array] | None = None) -> None:
        super().__init__(None)
        self.zbar, self.predictors = zbar, predictors
        self.calls = 0
        self.theta: Any = None
        self.beta: Any = None
        self.label: Any = None
        self.switch: Any = None
        self.coefficients: list[jax.Array] = []
        self.linear = True

    def process_message(self, msg: dict) -> None:
        if msg["type"] != "draw_words":
            return
        self.calls += 1
        _, self.theta, self.beta, self.label, self.switch = msg["args"]
        if callable(self.zbar):
            self.zbar = self.zbar(self.theta)
        msg["value"] = Zbar(self._predictor, self._array)

    def _predictor(self, eta: jax.Array) -> jax.Array:
        self.coefficients.append(eta)
        if self.predictors is None:
            return self.zbar @ eta
        return self.predictors[len(self.coefficients) - 1]

    def _array(self) -> jax.Array:
        self.linear = False
        return self.zbar


def run(
    story: Callable, corpus: Documents | Corpus, y: Y, values: Values, answer: Messenger | None = None,
    *, key: jax.Array | None = None, prior: bool | Callable[[dict], Any] = False,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Trace the story with the given values, hidden from whatever handlers are active around it.

    A site without a value gets a feasible one (with a key any, else always the same), or with ``prior`` a draw from its
    distribution; a function in its place may give another value, or None to leave it at the draw.
    """

    def value(site: dict) -> Any:
        if site["name"] in values:
            return values[site["name"]]
        if site["type"] != "sample" or site["is_observed"]:
            return None
        if callable(prior):
            return prior(site)
        if prior:
            return None
        return feasible(site) if key is None else init_to_uniform(site, radius=1.0)

    global _traced_in
    _traced_in = os.getpid()
    seeded = handlers.seed(rng_seed=jax.random.key(0) if key is None else key)
    with TRACING, handlers.block(), handlers.trace() as trace, handlers.substitute(substitute_fn=value), seeded:
        with answer or Messenger():
            story(corpus, y)
    return trace


def feasible(site: dict) -> jax.Array | None:
    """A value for a site that is continuous: numbers between -1 and 1, moved into its support; the same for a name.

    They are a hash of their places, of a few operations: random numbers would take most of what it takes to compile a story.
    """
    if site["fn"].support.is_discrete:
        return None
    with helpful_support_errors(site):
        transform = biject_to(site["fn"].support)
    shape = site["kwargs"].get("sample_shape", ()) + transform.inverse_shape(site["fn"].shape())
    bits = jax.lax.iota(jnp.uint32, math.prod(shape)) + np.uint32(zlib.crc32(site["name"].encode()))
    for factor, shift in ((0x9E3779B1, 16), (0x85EBCA6B, 13), (0xC2B2AE35, 16)):  # of MurmurHash3
        bits = bits * np.uint32(factor)
        bits = bits ^ (bits >> np.uint32(shift))
    return transform((bits >> np.uint32(8)).astype(float).reshape(shape) * np.float32(2**-23) - np.float32(1 - 2**-24))


def mean_of_prior(site: dict) -> jax.Array | None:
    """For ``prior`` of :func:`run`: NumPyro's ``init_to_mean``, with 1 where the mean is not finite."""
    value = init_to_mean(site)
    return None if value is None else jnp.where(jnp.isfinite(value), value, 1.0)


def log_prob(site: dict) -> jax.Array:
    """The site's log-density, unsummed."""
    value = site["fn"].log_prob(site["value"])
    return value if site["scale"] is None else value * site["scale"]


def by_document(terms: jax.Array, axis: int) -> jax.Array:
    """Terms summed for each document, whose axis is given, [documents]."""
    rows = jnp.moveaxis(terms, axis, -1)
    return rows.sum(tuple(range(rows.ndim - 1)))


def total(trace: Mapping[str, dict], names: Sequence[str] | None = None) -> jax.Array:
    """The log-density of some sample sites of a trace, or of all."""
    sites = [site for name, site in trace.items() if site["type"] == "sample" and (names is None or name in names)]
    return jnp.sum(jnp.stack([jnp.zeros(()), *(log_prob(site).sum() for site in sites)]))


def base_distribution(fn: Any) -> Any:
    """A distribution without the wrappers that plates, events and masks put around it."""
    while isinstance(fn, dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn


def parameters(fn: Any) -> dict[str, tuple[Any, Any]]:
    """What a distribution was given, by name: the value and the constraint on it."""
    fn = base_distribution(fn)
    found: dict[str, tuple[Any, Any]] = {}
    for part in ("base_dist", "mixing_distribution", "component_distribution"):
        if hasattr(fn, part):
            found |= parameters(getattr(fn, part))
    given = {
        name: what for name, what in getattr(fn, "arg_constraints", {}).items() if fn.__dict__.get(name) is not None
    }
    return found | {n: (getattr(fn, n), what) for n, what in given.items() if not constraints.is_dependent(what)}


def concentration(fn: Any) -> jax.Array:
    """alpha of a Dirichlet inside NumPyro's wrappers."""
    return base_distribution(fn).concentration
