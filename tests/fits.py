"""Fits made by hand: draws are given, and no engine has to run."""

from __future__ import annotations

import numpy as np

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference.story.reading import read

TRAIN = Corpus.from_counts(np.random.default_rng(1).poisson(1.5, (6, 5)) + 1, list("abcde"))


def fit_of(story, draws, corpus=TRAIN, y=None, info=None, **arguments):
    """A fit with the given draws [chain, draw, ...]."""
    return inference.Fit.of(read(story, corpus, y, arguments), draws, engine="gibbs", info=info or {})
