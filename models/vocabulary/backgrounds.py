"""The background of additive topics: how often terms are used, in logarithms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .arguments import BadArgument, check_positive


def background(corpus, smoothing=0.5):
    """Log frequencies of the terms of a Corpus, [terms]; ``smoothing`` is added to counts, so that absent terms have one."""
    check_positive(smoothing=smoothing)
    counts = np.asarray(corpus.counts.sum(0), float).ravel() + smoothing
    return np.log(counts / counts.sum()).astype(np.float32)


def check_background(corpus, background):
    """Log frequencies of terms as an array, one a term."""
    background = jnp.asarray(background)
    if background.shape != (corpus.num_terms,):
        raise BadArgument(
            f"background has shape {background.shape} for {corpus.num_terms} terms; give models.background(corpus)."
        )
    return background
