"""Engines: each takes any story and returns a Fit."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

import jax

# NVIDIA's cards multiply float32 matrices with 11 binary digits unless told otherwise: bounds and Cholesky roots break down
if getattr(jax.config, "jax_default_matmul_precision", None) is None:
    jax.config.update("jax_default_matmul_precision", "float32")

from .em.engine import vem
from .marginal.nuts_engine import nuts
from .marginal.svi_engine import svi
from .mcmc.engine import gibbs
from .mcmc.ratio_tests import check
from .posterior.fit import Fit
from .posterior.store import load
from .predictive.cross_validation import cross_predict, grid_search
from .predictive.evidence import label_evidence, word_weights
from .predictive.pointwise import log_likelihood
from .predictive.redrawn import token_topics
from .simulation import Trials

__all__ = [
    "Fit", "Trials", "check", "cross_predict", "gibbs", "grid_search", "label_evidence", "load", "log_likelihood", "nuts",
    "svi", "token_topics", "vem", "word_weights",
]  # fmt: skip
