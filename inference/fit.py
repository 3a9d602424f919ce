"""A fit: a posterior with all that can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.corpora.streams import Stream

from . import describing
from .filing import predict_to, transform_to
from .posterior import tables
from .posterior.effects import effects
from .posterior.naming import renamed
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

    def topics(
        self, n: int = 10, *, by: str = "relevance", weight: float | None = None, chain: int = 0
    ) -> pd.DataFrame:
        """The n leading terms of every topic of a chain, with the topic's coefficient where there is one.

        Topics are those of one chain: another may number them otherwise, or have others (``diagnostics.align`` tells).

        Parameters
        ----------
        by
            What makes a term lead. "relevance" (Sievert & Shirley 2014): lambda log p(w | topic) + (1 - lambda)
            log [p(w | topic) / p(w)], frequent in the topic and more so than elsewhere. "frex" (Airoldi & Bischof 2016):
            the harmonic mean of a term's ranks by exclusivity and by frequency. "probability": p(w | topic) alone, by which
            words that all topics share lead many.
        weight
            Of relevance, lambda (0.6 by default; 1 is "probability"); of frex, that of exclusivity (0.5 by default).

        Returns
        -------
        Columns: chain, topic (its number, or its name after :meth:`rename`), rank, term, probability, score (what the order
        is by), and for a coefficient ``<site>``, ``<site>_low``, ``<site>_high`` (90%); for one with several outputs its
        means, ``<site>[<output>]``.
        """
        return tables.topics(self, n, by=by, weight=weight, chain=chain)

    def documents(self, topic: int | str | None = None, n: int = 5, *, chain: int = 0) -> pd.DataFrame:
        """The n fitted documents that have most of a topic, or of each topic where none is named.

        Columns: chain, topic, rank, row (of the document in the corpus), document (its name), share (the posterior mean of
        the topic's proportion), and its text where the corpus has kept texts (``keep_texts=True``). Topics are those of one
        chain.
        """
        return describing.documents(self, topic, n, chain=chain)

    def correlations(self, *, interval: float | None = None, chain: int = 0) -> pd.DataFrame:
        """Which topics share documents: correlations of the proportions of two topics over the fitted documents.

        A table [topics, topics] of posterior means: over draws of the proportions, or, where the fit has kept their means
        alone, the correlations of these. Proportions sum to 1, so that unrelated topics have small negative correlations
        (about -1 / (topics - 1) where all are alike). Topics are those of one chain.

        ``interval``: the probability of a central interval, such as 0.9; then a pair of topics is a row, with the columns
        topic, other, mean, low, high, sign_probability.
        """
        return describing.correlations(self, interval=interval, chain=chain)

    def effects(
        self, var_names: str | Sequence[str] | None = None, *, probability: float = 0.9, n: int = 5, chain: int = 0
    ) -> pd.DataFrame:
        """Coefficients with their intervals: of topics for the response, and of the covariates that the story reads.

        Columns: chain, site, topic, output (the class, or the number of a response, where there are several), covariate
        (whose coefficient it is), mean, low, high, sign_probability (that the coefficient has the sign of its mean), and
        terms, n leading ones of the topic. A column that would be empty is left out. Topics are those of one chain.

        A site is the coefficient of a covariate, of topics' proportions as well as of the response, if the covariate makes
        no difference to the story where the site, or a row of it, is 0. So a coefficient may have any name.

        Parameters
        ----------
        var_names
            Sites, all by default.
        probability
            Of the central interval from low to high.
        """
        return effects(self, var_names, probability=probability, n=n, chain=chain)

    def rename(self, names: Mapping[int | str, str] | Sequence[str]) -> Self:
        """The same fit with names for its topics; this one stays as it is.

        ``names``: a dict from a topic's number, or the name it has, to its new name, or a list with one name a topic. The
        names are in the place of numbers in every table, in ``fit.posterior`` (``posterior.sel(topic="food")``), in figures
        and the report, and are saved with the fit; topics without one keep their number, as text. A name is for the topic
        of that number in all chains, so chains must have been matched (``diagnostics.align``), which keeps names.
        """
        return renamed(self, names)

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

    def predict_to(self, path: str | Path, stream: Stream, **options: Any) -> Path:
        """The predictions of a stream's documents, written batch by batch. See :func:`filing.predict_to`."""
        return predict_to(self, path, stream, **options)

    def transform_to(self, path: str | Path, stream: Stream, **options: Any) -> Path:
        """The topic proportions of a stream's documents, written batch by batch. See :func:`filing.transform_to`."""
        return transform_to(self, path, stream, **options)

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
