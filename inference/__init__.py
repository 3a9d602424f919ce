"""Engines: each takes any story and returns a Fit."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

import jax

# NVIDIA's cards multiply float32 matrices with 11 binary digits unless told otherwise: bounds and Cholesky roots break down
if getattr(jax.config, "jax_default_matmul_precision", None) is None:
    jax.config.update("jax_default_matmul_precision", "float32")

from .cross_validation import cross_predict, grid_search
from .fit import Fit
from .gibbs_engine import gibbs
from .nuts_engine import nuts
from .pointwise import log_likelihood
from .ratio_tests import check
from .redrawn import token_topics
from .store import load
from .svi_engine import svi
from .trials import Trials
from .vem_engine import vem
from .word_evidence import label_evidence, word_weights

__all__ = [
    "Fit", "Trials", "check", "cross_predict", "gibbs", "grid_search", "label_evidence", "load", "log_likelihood", "nuts",
    "svi", "token_topics", "vem", "word_weights",
]  # fmt: skip
