"""What the observed sites of a story see of y: every value must be possible, and there must be something to learn."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from topiczoo.corpora.layouts import Documents

from .bound import BoundGraph
from .response import Y
from .tracing import GIVEN, ZbarHandler, base_distribution, run

INTERVAL = type(constraints.integer_interval(0, 1))
TAKES = {
    type(constraints.boolean): "0 or 1",
    type(constraints.positive): "numbers above 0",
    type(constraints.nonnegative_integer): "whole numbers from 0",
    INTERVAL: "whole numbers from 0 to {largest}",
}
REAL = (type(constraints.real), type(constraints.real_vector))
FAR = 10  # spreads of what the priors expect
STANDARD = 5.0  # nine in ten responses within it: that is a unit scale, or near one


class Observed(NamedTuple):
    """One observed site, before NaN is masked and anything is rounded; documents are the first axis."""

    value: np.ndarray  # [documents, ...]
    possible: np.ndarray  # [documents], whether all of it is missing or inside the support
    largest: np.ndarray | None  # [documents], the largest whole number inside the support, where there is one
    support: type
    discrete: bool


def observed(graph: BoundGraph) -> dict[str, Observed]:
    """What each observed site that has an axis of documents sees of y."""
    if graph.y is None:
        return {}
    laid = graph.documents(pairs=not graph.has_words)
    seen = jax.tree.map(np.asarray, graph.program(_observed)(laid, graph.response.on_device()))
    found = {}
    for name, (value, possible, largest) in seen.items():
        support = graph.sites[name].fn.support
        kind, discrete = type(getattr(support, "base_constraint", support)), getattr(support, "is_discrete", False)
        found[name] = Observed(value, possible, largest, kind, discrete)
    return found


def _observed(graph: BoundGraph, corpus: Documents, y: Y) -> dict[str, Any]:
    """Value, whether it is possible, and the largest possible one of each site."""

    def by_document(array: jax.Array, axis: int) -> jax.Array:
        return jnp.moveaxis(array, axis, 0).reshape(corpus.num_documents, -1)

    trace = run(graph.story, corpus, y, {}, ZbarHandler(lambda theta: theta))
    seen = {}
    for name in graph.observed:
        fn, axis = trace[name]["fn"], graph.density_axis[name]
        value = trace[name]["infer"].get(GIVEN, trace[name]["value"])
        if axis is None or isinstance(value, tuple):
            continue
        if jnp.broadcast_shapes(jnp.shape(value), fn.shape()) != fn.shape():
            raise ValueError(
                f"y gives the site {name!r} values of shape {jnp.shape(value)}, but its distribution has the shape "
                f"{fn.shape()}; make them agree."
            )
        value = jnp.broadcast_to(jnp.asarray(value, jnp.float32), fn.shape())
        inside = jnp.ones(fn.batch_shape, bool) if fn.support is None else fn.support(value)
        missing = jnp.isnan(value).reshape(*inside.shape, -1).any(-1)
        largest = None
        if isinstance(fn.support, INTERVAL):
            largest = by_document(jnp.broadcast_to(fn.support.upper_bound, inside.shape), axis).min(1)
        value = jnp.moveaxis(value, axis - fn.event_dim, 0)
        seen[name] = value, by_document(inside | missing, axis).all(1), largest
    return seen


def check_support(graph: BoundGraph, seen: dict[str, Observed]) -> None:
    """Every observed value must be possible under its site's distribution."""
    for name, site in seen.items():
        if site.possible.all():
            continue
        row, family = int(np.argmin(site.possible)), graph.family(name)
        given = [_shown(graph, leaf[row]) or str(leaf[row].tolist()) for leaf in jax.tree.leaves(graph.y)]
        raise ValueError(
            f"y of document {str(graph.corpus.names[row])!r} is {', '.join(given)}, outside the support of the site "
            f"{name!r} ({family.__name__}); {_fixes(graph, name, site, row)}, or change the site's distribution."
        )


def _fixes(graph: BoundGraph, name: str, site: Observed, row: int) -> str:
    if site.support not in TAKES:
        return "transform y"
    largest = 1 if site.largest is None else int(site.largest[row])
    fix = f"give {TAKES[site.support].format(largest=largest)}"
    if _shown(graph, site.value[row].ravel()[0]):
        fix = f"give {largest + 1} labels"
    most = np.nanmax(site.value)
    rooms = getattr(graph.story.function, "makes_room", {})  # a story may say which of its arguments does
    room = next((rooms[family.__name__] for family in graph.family(name).__mro__ if family.__name__ in rooms), "")
    if room and most > largest and most % 1 == 0:
        fix += f", set {room.format(most, most + 1)}"
    return fix


def check_variety(graph: BoundGraph, seen: dict[str, Observed]) -> None:
    """There must be something to learn: responses that vary, and ordered classes without gaps."""
    for site_name, site in seen.items():
        name = graph.response.called(site_name)
        parts = {name: site.value}
        if site.value.ndim > 1 and not site.discrete:  # each number has a spread of its own to learn
            columns = site.value.reshape(len(site.value), -1).T
            parts = {f"{name}[:, {i}]": column for i, column in enumerate(columns)}
        for part, values in parts.items():
            labelled = values[~np.isnan(values)]
            if labelled.size > 1 and np.ptp(labelled) == 0:
                shown = _shown(graph, labelled[0]) or f"{labelled[0]:g}"
                raise ValueError(
                    f"{part} is constant ({shown}); there is nothing to learn from it: give one that varies."
                )
        if issubclass(graph.family(site_name), dist.OrderedLogistic):
            _check_gaps(graph, name, np.unique(site.value[~np.isnan(site.value)]))


def warn_of_scale(graph: BoundGraph, seen: dict[str, Observed]) -> None:
    """Say so where a real-valued response lies far from all that the story's priors expect of it.

    One in about standard units is taken as it is: drawing from the priors is half a second of compiling.
    """
    parts = {name: site.value.reshape(len(site.value), -1) for name, site in seen.items() if site.support in REAL}
    given = {name: np.nanquantile(part, [0.1, 0.5, 0.9], axis=0) for name, part in parts.items()}
    given = {name: quantiles for name, quantiles in given.items() if np.abs(quantiles).max() > STANDARD}
    if not given:
        return
    try:
        expected = _prior_responses(graph, list(given))
    except Exception:
        return  # a story that does not run without y, or whose priors cannot be drawn from, expects nothing
    for name, (low, middle, high) in given.items():
        lower, centre, upper = np.quantile(expected[name], [0.1, 0.5, 0.9])
        spread, reach = (high - low) / 2, FAR * (upper - lower) / 2
        far = (np.abs(middle - centre) > reach) | (spread > reach)
        if not far.any():
            continue
        column, axis = int(np.argmax(far)), "0" if seen[name].value.ndim > 1 else ""
        y = graph.response.called(name)
        centred, scale = f"{y} - {y}.mean({axis})", f"{y}.std({axis})"
        if np.isnan(parts[name]).any():
            gaps = f"{y}, {axis}" if axis else y
            centred, scale = f"{y} - np.nanmean({gaps})", f"np.nanstd({gaps})"
        warnings.warn(
            f"{y} is {middle[column]:.4g}, give or take {spread[column]:.2g}, where the priors of the story "
            f"{graph.story.name!r} expect {centre:.1g}, give or take {(upper - lower) / 2:.1g}; standardise it: "
            f"{y} = ({centred}) / {scale}.",
            stacklevel=5,
        )


def _prior_responses(graph: BoundGraph, names: list[str], number: int = 100) -> dict[str, np.ndarray]:
    """Responses of the few documents at draws from the priors."""

    keys = jax.random.split(jax.random.key(0), number)
    drawn = graph.program(_from_priors, tuple(names))(graph.few_documents, keys)
    return jax.tree.map(np.asarray, drawn)


def _from_priors(graph: BoundGraph, names: tuple[str, ...], few: Documents, keys: jax.Array) -> dict[str, jax.Array]:
    def corner(site: dict) -> jax.Array | None:
        """A Dirichlet's draw is one of its corners: gammas are dear to compile, and responses spread the more."""
        fn = site["fn"]
        if not isinstance(base_distribution(fn), dist.Dirichlet):
            return None
        chosen = jax.random.categorical(site["kwargs"]["rng_key"], jnp.log(jnp.broadcast_to(fn.mean, fn.shape())))
        return jax.nn.one_hot(chosen, fn.shape()[-1])

    def one(key: jax.Array) -> dict[str, jax.Array]:
        answer = ZbarHandler(lambda theta: theta)
        trace = run(graph.story, few, None, {}, answer, key=key, prior=corner)
        return {name: trace[name]["value"] for name in names}

    return jax.lax.map(one, keys)


def _check_gaps(graph: BoundGraph, name: str, present: np.ndarray) -> None:
    absent = np.setdiff1d(np.arange(present[-1]), present)
    if absent.size:
        gap, last = (_shown(graph, value) or f"{value:g}" for value in (absent[0], present[-1]))
        raise ValueError(
            f"{name} has the ordered class {last} but no document of class {gap}; "
            + ("number the classes without gaps." if graph.response.classes is None else "leave its category out.")
        )


def _shown(graph: BoundGraph, value: np.ndarray) -> str:
    """The label of a code, empty where y came as numbers."""
    classes = graph.response.classes
    if classes is None or np.isnan(value) or not 0 <= value < len(classes):
        return ""
    return repr(classes[int(value)].item())
