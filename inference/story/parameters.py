"""Fixed parameters of a story's distributions: each must lie where its distribution wants it.

What other sites draw is feasible by construction; what an argument or a number in the story says is not. NumPyro's
distributions say themselves what they take (``arg_constraints``), so this holds for any story.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpyro.distributions import constraints

from .bound import BoundGraph
from .tracing import ZbarHandler, parameters, run

ROUNDING = 1e-3  # by which shares may miss 1
WANTED = {
    type(constraints.positive): "a positive number",
    type(constraints.nonnegative): "a number of at least 0",
    type(constraints.unit_interval): "a number from 0 to 1",
    type(constraints.real): "a finite number",
    type(constraints.positive_integer): "a whole number of at least 1",
    type(constraints.nonnegative_integer): "a whole number of at least 0",
    type(constraints.simplex): "shares that are not below 0 and sum to 1",
    type(constraints.ordered_vector): "rising numbers",
}


def check_parameters(graph: BoundGraph) -> None:
    """Refuse a fixed parameter outside of its constraint, by the name of the argument that holds it where one does."""
    for site, values in graph.fixed_values.items():
        for parameter, value in values.items():
            constraint = graph.fixed[site][parameter]
            bad = _outside(np.asarray(value), constraint)
            if graph.story.masked:
                bad = bad[~np.isnan(bad)]  # made of a response that is missing
            if bad.size:
                _refuse(graph, site, parameter, bad, constraint)


def _outside(value: np.ndarray, constraint: Any) -> np.ndarray:
    """The numbers of a parameter that are outside of its constraint."""
    inner = getattr(constraint, "base_constraint", constraint)
    lost = np.isnan(value) | (value == np.inf)
    if lost.any():
        return value[lost]
    if isinstance(inner, type(constraints.simplex)):
        return value[(value < 0) | (np.abs(value.sum(-1, keepdims=True) - 1) > ROUNDING)]
    if constraint is constraints.real_vector:
        return value[:0]  # the logit of what is impossible is minus infinity
    inside = np.asarray(inner(value))
    return value[~inside] if inside.shape == value.shape else value.ravel()[: 0 if inside.all() else None]


def _refuse(graph: BoundGraph, site: str, parameter: str, bad: np.ndarray, constraint: Any) -> NoReturn:
    story, family = graph.story, graph.family(site).__name__
    wanted = WANTED.get(type(getattr(constraint, "base_constraint", constraint)), f"one that is {constraint!r}")
    for name, value in {**story.arguments, **story.defaults, **story.arguments}.items():
        places = _holds(value, bad[0])
        if places is None or not _answers(graph, site, parameter, name):
            continue
        what = f"is {bad[0]:g}" if places == () else f"has {bad[0]:g} at place {', '.join(map(str, places))}"
        raise ValueError(
            f"{name} {what}, which the site {site!r} of the story {story.name!r} cannot have as the {parameter} of its "
            f"{family}; give {wanted}."
        )
    raise ValueError(
        f"The site {site!r} of the story {story.name!r} has {bad[0]:g} for the {parameter} of its {family}; give {wanted}."
    )


def _holds(argument: Any, number: Any) -> tuple[int, ...] | None:
    """Where an argument of the story holds a number, as its place in an array; None if it does not."""
    try:
        same = np.isclose(np.asarray(argument, np.float32), number, rtol=1e-6, atol=0.0, equal_nan=True)
    except (TypeError, ValueError):
        return None
    return tuple(np.argwhere(same)[0].tolist()) if not isinstance(argument, bool) and same.any() else None


def _answers(graph: BoundGraph, site: str, parameter: str, argument: str) -> bool:
    """Whether the parameter would do with another number there: two arguments may hold the same one."""
    given = {**graph.story.defaults, **graph.story.arguments}[argument]
    changed = graph.story.with_arguments(**{argument: np.ones(np.shape(given))[()]})
    try:
        trace = run(changed, graph.few_documents, graph.few_y, {}, ZbarHandler(lambda theta: theta))
    except Exception:
        return False  # a number of topics, say: it is no whole number now
    value, constraint = parameters(trace[site]["fn"])[parameter]
    return not _outside(np.asarray(value), constraint).size
