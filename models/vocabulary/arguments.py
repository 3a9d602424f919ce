"""What stories refuse, each with one sentence that names the argument, the value and the fix."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from .responses import RESPONSES

SEVERAL = ("normal", "softmax")  # responses that may have several outputs


class BadArgument(ValueError):
    """An argument that a story cannot work with; engines pass the sentence on as it stands."""


def check_positive(fix="give a positive number", **values):
    """Numbers among the values, if they are numbers, lie above 0 and are finite."""
    for name, value in values.items():
        if isinstance(value, int | float) and not 0 < value < float("inf"):
            raise BadArgument(f"{name} is {value!r}; {fix}.")


def check_choice(name, value, known, or_a=""):
    """One of the known names; or a function, where ``or_a`` says so."""
    if not (or_a and callable(value)) and value not in known:
        raise BadArgument(f"{name} is {value!r}; give one of {', '.join(map(repr, known))}{or_a}.")


def check_arguments(corpus, y, response, options, outputs, covariates):
    """A response that exists, with options that it takes; outputs that fit it and y; covariates that are there."""
    _check_response(response, options)
    if outputs is not None and not (isinstance(outputs, int | np.integer) and outputs >= 1):
        raise BadArgument(f"outputs is {outputs!r}; give a whole number of at least 1, or leave it out.")
    if isinstance(response, str):
        _check_outputs(y, response, outputs)
    check_covariates(corpus, covariates)


def _check_response(response, options):
    known = ", ".join(map(repr, RESPONSES))
    if isinstance(response, str) and response not in RESPONSES:
        raise BadArgument(f"response is {response!r}, which is none of {known}; choose one, or give a function.")
    if not isinstance(response, str) and not callable(response):
        raise BadArgument(f"response is {response!r}; give one of {known}, or a function.")
    if not isinstance(options or {}, Mapping):
        raise BadArgument(f"options is {options!r}; give a dict of keyword arguments of the response.")
    if options:
        _check_options(RESPONSES[response] if isinstance(response, str) else response, options)


def _check_options(respond, options):
    _, *parameters = inspect.signature(respond).parameters.values()
    takes = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    for name in options:
        if name not in takes and len(takes) == len(parameters):
            raise BadArgument(
                f"options has {name!r}, which the response {getattr(respond, '__name__', '')!r} does not take; "
                f"it takes {', '.join(map(repr, takes)) or 'none: leave options out'}."
            )


def _check_outputs(y, response, outputs):
    if outputs is None and response == "softmax":
        raise BadArgument("outputs is missing for the response 'softmax'; give the number of classes, e.g. outputs=3.")
    if outputs is not None and response not in SEVERAL:
        raise BadArgument(f"outputs is {outputs}, but the response {response!r} has one; leave outputs out.")
    if isinstance(y, Mapping):
        raise BadArgument(f"y is a dict of {', '.join(map(repr, y))}, but slda_glm has one response; give an array.")
    if y is None:
        return
    columns = jnp.shape(y)[1:]
    if response == "normal" and columns != (() if outputs is None else (outputs,)):
        fix = f"give outputs={columns[0]}" if columns else "leave outputs out"
        raise BadArgument(f"y has {columns[0] if columns else 'no'} columns and outputs is {outputs}; {fix}.")
    if response != "normal" and columns:
        raise BadArgument(f"y has {columns[0]} columns for the response {response!r}; give one number a document.")


def check_covariates(corpus, covariates, called="covariates"):
    """Columns of numbers that the corpus has; ``called`` is the argument that names them."""
    if isinstance(covariates, str):
        raise BadArgument(f"{called} is the bare string {covariates!r}; give a list, [{covariates!r}].")
    for name in covariates:
        if name not in corpus.covariates:
            known = ", ".join(map(repr, corpus.covariates)) or "none"
            raise BadArgument(
                f"{called} has {str(name)!r}, which is no numeric column of corpus.covariates (there are {known}); "
                "add it to the corpus, as numbers."
            )
