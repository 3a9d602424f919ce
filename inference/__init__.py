"""Engines: each takes any story and returns a Fit."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

import jax

# NVIDIA's cards multiply float32 matrices with 11 binary digits unless told otherwise: bounds and Cholesky roots break down
if getattr(jax.config, "jax_default_matmul_precision", None) is None:
    jax.config.update("jax_default_matmul_precision", "float32")

from .api import check, gibbs, load, nuts, online, svi, vem
from .blocks.block import Block, log_density_of, register_block, registered_blocks, unregister_block
from .fit import Fit
from .native.build import build as compile_sweep
from .piecemeal import OnlineVEM
from .predictive.cross_validation import cross_predict, grid_search
from .predictive.evidence import label_evidence, token_topics, word_weights
from .predictive.pointwise import log_likelihood
from .programs.disk import keep_on_disk
from .resuming import more, resume
from .simulation import Trials, simulate

keep_on_disk()

__all__ = [
    "Block", "Fit", "OnlineVEM", "Trials", "check", "compile_sweep", "cross_predict", "gibbs", "grid_search",
    "label_evidence", "load", "log_density_of", "log_likelihood", "more", "nuts", "online", "register_block",
    "registered_blocks", "resume", "simulate", "svi", "token_topics", "unregister_block", "vem", "word_weights",
]  # fmt: skip
