"""Documents as counts of terms: the `Corpus`, its readers, and a simulated demo corpus."""

from .corpus import Corpus
from .readers import read_csv, read_ldac
from .reviews import load_reviews

__all__ = ["Corpus", "load_reviews", "read_csv", "read_ldac"]
