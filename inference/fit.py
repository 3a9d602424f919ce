"""A fit: a posterior with all that can be asked of it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus

from .posterior import tables
from .posterior.posterior import Posterior
from .posterior.store import save, to_datatree
from .predictive.predicting import predict, transform
from .predictive.prediction import Prediction
from .predictive.selection import Selection, select
from .stacking import chain_weights

if TYPE_CHECKING:
    import xarray


class Fit(Posterior):
    """A posterior with its tables, its predictions and its file. Attributes are those of :class:`.posterior.Posterior`."""

    @cached_property
    def posterior(self) -> xarray.DataTree:
        """Everything as an ArviZ DataTree: groups posterior, sample_stats, and for large sites snapshots and means."""
        return to_datatree(self)

    def topics(self, n: int = 10, *, chain: int = 0) -> pd.DataFrame:
        """The n most probable terms of every topic of a chain, with the topic's coefficient where there is one.

        Topics are those of one chain: another may number them otherwise, or have others (``diagnostics.align`` tells).
        Columns: chain, topic, rank, term, probability, and for a coefficient ``<site>``, ``<site>_low``, ``<site>_high``
        (90%); for one with several outputs its means, ``<site>[<output>]``.
        """
        return tables.topics(self, n, chain=chain)

    def topic_terms(self, chain: int) -> np.ndarray:
        """The mean topics of a chain, [topics, terms]."""
        return tables.topic_terms(self, chain)

    def deviations(self, site: str, n: int = 10, *, chain: int = 0) -> pd.DataFrame:
        """The n terms that each component of a site of deviations raises most: of a topic, of a label, or of both.

        Columns: topic and label as far as the site has them, rank, term, deviation. A component that raises fewer terms has
        fewer rows.
        """
        return tables.deviations(self, site, n, chain=chain)

    def predict(self, corpus: Corpus, *, chains: Any = "equal", **options: Any) -> Prediction:
        """The posterior predictive distribution of the response of new documents. See :func:`prediction.predict`.

        ``chains``: "equal", all count alike. "stacked": they are weighted so that together they predict best the fitted
        documents, each as if its response had been left out; with ``(corpus, y)`` documents that the fit has not seen
        (:mod:`.stacking`); or one weight a chain. ``prediction.weights`` holds them.
        """
        return predict(self, corpus, weights=chain_weights(self, chains), **options)

    def transform(self, corpus: Corpus, **options: Any) -> np.ndarray:
        """Expected topic proportions of new documents, [documents, topics]. See :func:`prediction.transform`."""
        return transform(self, corpus, **options)

    def select(self, rule: str = "projection", **options: Any) -> Selection:
        """Which topics count for the response, by a rule. See :func:`selection.select`."""
        return select(self, rule, **options)

    def save(self, path: str | Path) -> Path:
        """Write the fit to one netCDF file, whole or not at all: if anything goes wrong the old file stands.

        Draws of shares (topics, proportions) of more than a million numbers are rounded to the digits that a posterior can
        tell: the square root of a share to within 3e-6, where N words leave it a standard deviation of 1 / (2 sqrt(N)), and
        every share to within 4% of itself. Everything else is kept exactly, as are means. The file is compressed and has a
        checksum; xarray and ArviZ read it (``xarray.open_datatree(path, engine="h5netcdf")``).
        """
        return save(self, path)
