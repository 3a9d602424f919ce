"""The public functions: engines that return fits, files, and checks."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .advice import advised
from .em import engine as em
from .fit import Fit
from .lasting.checkpoint import Checkpoint
from .marginal import nuts_engine, svi_engine
from .mcmc import engine as mcmc
from .mcmc import ratio_tests
from .online_em import engine as online_em
from .posterior import store
from .posterior.posterior import Posterior
from .programs.blas import one_thread
from .story.validation import Unserved

Given = ParamSpec("Given")
Found = TypeVar("Found")


def _advised(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The function; where it refuses a story, the sentence says which engines would take it."""

    @functools.wraps(function)
    def ask(*arguments: Given.args, **named: Given.kwargs) -> Found:
        try:
            return function(*arguments, **named)
        except Unserved as refusal:
            raise advised(refusal) from refusal

    return ask


def _fits(engine: Callable[Given, Posterior]) -> Callable[Given, Fit]:
    """An engine whose posteriors are fits."""

    @functools.wraps(engine)
    def fit(*arguments: Given.args, **named: Given.kwargs) -> Fit:
        folder: Any = named.get("checkpoint")
        call: Any = engine
        if folder is not None:
            call = functools.partial(call, checkpoint=Checkpoint.of_call(engine, arguments, named))
        try:
            with one_thread():
                found = Fit.like(
                    call(*arguments, **{name: value for name, value in named.items() if name != "checkpoint"})
                )
        except Unserved as refusal:
            raise advised(refusal) from refusal
        if folder is not None:
            found.info["checkpoint"] = os.path.abspath(folder)
        return found

    return fit


gibbs = _fits(mcmc.gibbs)
nuts = _fits(nuts_engine.nuts)
svi = _fits(svi_engine.svi)
vem = _fits(em.vem)
online = _fits(online_em.online)
check = _advised(ratio_tests.check)


def load(path: str | Path, story: str | Callable | None = None, **arguments: Any) -> Fit:
    return Fit.like(store.load(path, story, **arguments))


load.__doc__ = store.load.__doc__
