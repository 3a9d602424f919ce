"""From a posterior to checks, metrics and a report; knows no model and no engine's internals."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .alignment import Alignment, align
from .diagnosis import Diagnosis, diagnose

__all__ = ["Alignment", "Diagnosis", "align", "diagnose"]
