"""Why a story does not run, told from what else does: the whole corpus, another argument, one response of several."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents

from .tracing import Story, ZbarHandler, run, total

TRACED = (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError)


def why_not(error: Exception, story: Story, corpus: Corpus, y: Any, n: int) -> ValueError:
    """The sentence for a story that failed on n documents of a corpus."""
    said = f"{type(error).__name__}: {str(error).splitlines()[0].rstrip('. ')}" if str(error) else type(error).__name__
    place = _place(error, story)
    if isinstance(error, TRACED):
        use = "use jax.numpy there, and jnp.where for a condition"
        return ValueError(f"The story {story.name!r} reads a value that JAX only traces{place}, as with NumPy; {use}.")
    whole = documents(corpus, pairs=True)

    def runs(y: Any, **changed: Any) -> bool:
        bound = story.with_arguments(**changed)
        parts = jax.tree.map(jnp.asarray, y)
        try:
            jax.eval_shape(lambda: total(run(bound, whole, parts, {}, ZbarHandler(lambda theta: theta))))
        except Exception:
            return False
        return True

    if runs(y):
        return ValueError(
            f"The story {story.name!r} does not run on a slice of {n} documents ({said}); numbers that belong to "
            "documents must come in y or in corpus.covariates."
        )
    if isinstance(y, dict) and any(runs(part) for part in y.values()):
        return ValueError(
            f"y is a dict of {', '.join(map(repr, y))}, and the story {story.name!r} does not run with it{place} ({said}); "
            "give an array with one number a document."
        )
    for name, value in story.arguments.items():
        default = story.defaults.get(name)
        if name in story.defaults and runs(y, **{name: default}):
            if _is_number_of(default) and not _is_number_of(value):
                return ValueError(f"{name} is {_short(value)}; give a whole number of at least 1, such as {default}.")
            return ValueError(
                f"{name} is {_short(value)}, and the story {story.name!r} does not run with it{place} ({said}); give one "
                f"of another kind, such as {name}={_short(default)}."
            )
    return ValueError(f"The story {story.name!r} does not run{place} ({said}); fix that line, or what it is given.")


def _place(error: Exception, story: Story) -> str:
    """Where in the file of the story it failed, and the line that did."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(story.function))
    except TypeError:
        file = None
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" at line {lines[-1].lineno}, `{lines[-1].line}`" if lines and lines[-1].line else ""


def _is_number_of(value: Any) -> bool:
    """Whether a value can be a number of things."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def _short(value: Any, most: int = 60) -> str:
    said = " ".join(repr(value).split())
    return said if len(said) <= most else f"{said[:most]}..."
