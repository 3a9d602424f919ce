"""Documents as counts of terms: the `Corpus`, its readers, public corpora by name, and a simulated demo corpus."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .corpus import Corpus
from .ldac import read_ldac
from .named import fetch
from .readers import read, read_csv
from .reviews import load_reviews
from .streams import stream
from .writers import write_csv

__all__ = ["Corpus", "fetch", "load_reviews", "read", "read_csv", "read_ldac", "stream", "write_csv"]
