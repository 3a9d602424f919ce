"""Engines: each takes any story and returns a Fit."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .fit import Fit
from .gibbs_engine import gibbs
from .nuts_engine import nuts
from .ratio_tests import check
from .store import load
from .svi_engine import svi
from .vem_engine import vem

__all__ = ["Fit", "check", "gibbs", "load", "nuts", "svi", "vem"]
