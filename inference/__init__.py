"""Engines: each takes any story and returns a Fit."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .ratio_tests import check
from .fit import Fit
from .gibbs_engine import gibbs
from .store import load

__all__ = ["Fit", "check", "gibbs", "load"]
