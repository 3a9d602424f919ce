"""A fit: the posterior of a story, whichever engine made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus

from ..story.tracing import Story
from ..story.validation import check_counts

if TYPE_CHECKING:
    import xarray

    from ..predictive.prediction import Prediction
    from ..predictive.selection import Selection


RAISED = 1e-3  # of a component's largest deviation: a smaller one is a zero that was not quite reached
NARROW = (
    "Intervals of a fit by {} are too narrow, those of 90% may hold 80%: a variational posterior leaves out much of what is "
    "not known; give predict documents set aside, calibrate=(corpus, y), or fit by gibbs."
)
STATISTIC_DIMS: dict[str, tuple[str | None, ...]] = {"usage": ("topic",)}  # axes of statistics, beside chain and draw


def are_shares(value: np.ndarray) -> bool:
    """Whether numbers along the last axis are parts of 1."""
    return bool(value.min() >= 0 and np.allclose(value.sum(-1), 1.0, atol=1e-3))


class Fit:
    """Posterior draws of a story, with what is needed to predict from them.

    Attributes
    ----------
    corpus, y
        What was fitted: the documents, and their responses with NaN for the unlabelled (None without a response).
    draws
        Site name -> array [chain, draw, ...] of the sites stored at every draw.
    snapshots, snapshot_index
        Large sites at some evenly spaced draws, and which draws those are.
    means
        Site name -> posterior mean of each chain, [chain, ...], for sites the engine averages on its way.
    statistics
        What the sampler says of each draw, e.g. ``diverging``.
    info
        Engine, seed, settings, and what served which site; after loading also the story's text when it was saved,
        ``story_source``.
    importance_ratios
        For a variational fit that was not loaded from a file: a function that compares the guide with the posterior.
    """

    topics_are_matched = False  # across chains

    def __init__(
        self, story: Story, corpus: Corpus, posterior: Mapping[str, np.ndarray], *, engine: str, y: Any = None,
        info: Mapping[str, Any] | None = None, statistics: Mapping[str, np.ndarray] | None = None,
        means: Mapping[str, np.ndarray] | None = None, snapshots: Mapping[str, np.ndarray] | None = None,
        snapshot_index: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.story, self.corpus, self.y, self.engine = story, corpus, y, engine
        self.draws = {name: np.asarray(value) for name, value in posterior.items()}
        self.statistics = {name: np.asarray(value) for name, value in (statistics or {}).items()}
        self.means = {name: np.asarray(value) for name, value in (means or {}).items()}
        self.snapshots = {name: np.asarray(value) for name, value in (snapshots or {}).items()}
        self.snapshot_index = np.arange(0) if snapshot_index is None else np.asarray(snapshot_index)
        self.info = dict(info or {})
        self.importance_ratios: Callable[[], tuple[np.ndarray, np.ndarray | None]] | None = None
        self.compiled: dict[Any, Any] = {}  # what prediction has compiled
        self.temperatures: dict[tuple[str, str], float | None] = {}  # of classes, see inference.probabilities
        self.unsaid = [NARROW.format(engine)] if engine in ("vem", "svi") else []  # warnings, each said once

    def __getstate__(self) -> dict[str, Any]:
        """A copy starts without what prediction has made: its draws may be changed, and it may be sent elsewhere."""
        return {**self.__dict__, "compiled": {}, "temperatures": {}}

    def __repr__(self) -> str:
        chains, draws = next(iter({**self.snapshots, **self.draws}.values())).shape[:2]
        return f"Fit of {self.story.name} by {self.engine}: {chains} chains of {draws} draws, sites {', '.join(self.sites)}"

    @property
    def vocabulary(self) -> np.ndarray:
        """The terms, in the order of the axis ``term``."""
        return np.asarray(self.corpus.vocabulary)

    @property
    def document_names(self) -> np.ndarray:
        """Names of the fitted documents, in the order of the axis ``document``."""
        return np.asarray(self.corpus.names)

    @property
    def classes(self) -> np.ndarray | None:
        """The labels in the order of their codes in y; None where y came as numbers."""
        return self.story.classes

    @property
    def sites(self) -> tuple[str, ...]:
        """Every site of which there are draws or means."""
        return tuple({**self.draws, **self.snapshots, **self.means})

    @property
    def has_topics(self) -> bool:
        """Whether any site has an axis of topics; naive Bayes has none."""
        return any("topic" in dims for dims in self.story.dims.values())

    @property
    def coefficients(self) -> list[str]:
        """Sites with one or several numbers a topic that are no shares of topics."""
        found = []
        for name, value in self.draws.items():
            dims = self.story.dims.get(name, ())
            if dims[:1] == ("topic",) and not {"term", "document"} & set(dims) and not are_shares(value):
                found.append(name)
        return found

    @cached_property
    def posterior(self) -> xarray.DataTree:
        """Everything as an ArviZ DataTree: groups posterior, sample_stats, and for large sites snapshots and means."""
        from .store import to_datatree

        return to_datatree(self)

    def mean(self, site: str, *, chain: int | None = None) -> np.ndarray:
        """The posterior mean of a site, over all chains or of one.

        Topic 3 of one chain need not be topic 3 of another: with several chains the mean of a site of topics is that of a
        ``chain``, or of a fit whose topics are matched (``diagnostics.align``).
        """
        if site in self.means:
            means = self.means[site]
        else:
            stored = {**self.snapshots, **self.draws}
            if site not in stored:
                raise KeyError(f"{site!r} is no site of this fit; it has {', '.join(self.sites)}.")
            means = stored[site].mean(1)
        if chain is not None:
            if not 0 <= chain < len(means):
                raise ValueError(f"chain is {chain!r}; the fit's chains are 0 to {len(means) - 1}.")
            return means[chain]
        if len(means) > 1 and not self.topics_are_matched and "topic" in self.story.dims.get(site, ()):
            raise ValueError(
                f"site is {site!r}, and its topics are not the same in each of the {len(means)} chains; give chain=0, or "
                "match them first: diagnostics.align(fit).mean(...)."
            )
        return means.mean(0)

    def topics(self, n: int = 10, *, chain: int = 0) -> pd.DataFrame:
        """The n most probable terms of every topic of a chain, with the topic's coefficient where there is one.

        Topics are those of one chain: another may number them otherwise, or have others (``diagnostics.align`` tells).
        Columns: chain, topic, rank, term, probability, and for a coefficient ``<site>``, ``<site>_low``, ``<site>_high``
        (90%); for one with several outputs its means, ``<site>[<output>]``.
        """
        check_counts(n=n)
        beta = self.topic_terms(chain)
        n = min(n, beta.shape[1])
        leading = np.argsort(-beta, axis=1, kind="stable")[:, :n]
        topic = np.repeat(np.arange(len(beta)), n)
        frame = pd.DataFrame({
            "chain": chain,
            "topic": topic,
            "rank": np.tile(np.arange(1, n + 1), len(beta)),
            "term": self.vocabulary[leading.ravel()],
            "probability": np.take_along_axis(beta, leading, 1).ravel(),
        })  # fmt: skip
        for name in self.coefficients:
            value = self.draws[name][chain]
            if value.ndim == 2:
                frame[name] = value.mean(0)[topic]
                frame[f"{name}_low"], frame[f"{name}_high"] = np.quantile(value, [0.05, 0.95], axis=0)[:, topic]
            elif value.ndim == 3:
                means, names = value.mean(0), self.classes
                if names is None or len(names) != means.shape[1]:
                    names = np.arange(means.shape[1])
                for output, label in enumerate(names):
                    frame[f"{name}[{label}]"] = means[topic, output]
        return frame

    def topic_terms(self, chain: int) -> np.ndarray:
        """The mean topics of a chain, [topics, terms]."""
        name = next((n for n, dims in self.story.dims.items() if dims == ("topic", "term")), None)
        if name is None:
            raise ValueError(
                f"The story {self.story.name!r} has no site with axes of topics and terms; "
                "deviations(site) shows the leading terms of any site with an axis of terms."
            )
        found = self.mean(name, chain=chain)
        return found if are_shares(found) else self._computed_topics(chain)

    def _computed_topics(self, chain: int) -> np.ndarray:
        """The topics that the story gives to draw_words at a chain's means, where they are no site themselves.

        Where each label has its own topics, their means over labels.
        """
        from ..predictive.fold_in import FoldIn
        from ..story.tracing import ZbarHandler, run

        fold, answer = FoldIn(self, self.corpus[:2]), ZbarHandler(lambda theta: theta)
        run(fold.graph.story, fold.corpus, None, fold.means(chain), answer)
        beta = np.asarray(answer.beta)
        return beta if beta.ndim == 2 else beta.mean(0)

    def deviations(self, site: str, n: int = 10, *, chain: int = 0) -> pd.DataFrame:
        """The n terms that each component of a site of deviations raises most: of a topic, of a label, or of both.

        Columns: topic and label as far as the site has them, rank, term, deviation. A component that raises fewer terms has
        fewer rows.
        """
        check_counts(n=n)
        value = self.mean(site, chain=chain)
        dims = self.story.dims[site]
        if dims[-1] != "term":
            raise ValueError(f"The site {site!r} has no axis of terms; give a site of deviations.")
        n = min(n, value.shape[-1])
        leading = np.argsort(-value, axis=-1, kind="stable")[..., :n]
        index = np.indices(leading.shape).reshape(leading.ndim, -1)
        columns = {}
        for place, size in enumerate(value.shape[:-1]):
            if size > 1 or dims[place] == "topic":
                columns[dims[place] or "label"] = index[place]
        if (names := self.classes) is not None and "label" in columns and columns["label"].max() < len(names):
            columns["label"] = names[columns["label"]]
        columns |= {"rank": index[-1] + 1, "term": self.vocabulary[leading.ravel()]}
        largest = np.take_along_axis(value, leading, -1)
        raised = largest > RAISED * largest.max(-1, keepdims=True)
        return pd.DataFrame({**columns, "deviation": largest.ravel()})[raised.ravel()].reset_index(drop=True)

    def global_draws(self, most: int | None = None) -> dict[str, np.ndarray]:
        """Draws [chain, draw, ...] of all sites that are not of documents, at draws where all of them are stored."""
        of_corpus = [name for name in self.draws if "document" not in self.story.dims.get(name, ())]
        draws = {name: self.draws[name] for name in of_corpus}
        if self.snapshots:
            draws = {name: value[:, self.snapshot_index] for name, value in draws.items()} | self.snapshots
        length = next(iter(draws.values())).shape[1]
        if most is not None and length > most:
            draws = {name: value[:, np.linspace(0, length - 1, most).astype(int)] for name, value in draws.items()}
        return draws

    def predict(self, corpus: Corpus, **options: Any) -> Prediction:
        """The posterior predictive distribution of the response of new documents. See :func:`prediction.predict`."""
        from ..predictive.prediction import predict

        return predict(self, corpus, **options)

    def transform(self, corpus: Corpus, **options: Any) -> np.ndarray:
        """Expected topic proportions of new documents, [documents, topics]. See :func:`prediction.transform`."""
        from ..predictive.prediction import transform

        return transform(self, corpus, **options)

    def select(self, rule: str = "projection", **options: Any) -> Selection:
        """Which topics count for the response, by a rule. See :func:`selection.select`."""
        from ..predictive.selection import select

        return select(self, rule, **options)

    def save(self, path: str | Path) -> Path:
        """Write the fit to one netCDF file, whole or not at all: if anything goes wrong the old file stands.

        Draws of shares (topics, proportions) of more than a million numbers are rounded to the digits that a posterior can
        tell: the square root of a share to within 3e-6, where N words leave it a standard deviation of 1 / (2 sqrt(N)), and
        every share to within 4% of itself. Everything else is kept exactly, as are means. The file is compressed and has a
        checksum; xarray and ArviZ read it (``xarray.open_datatree(path, engine="h5netcdf")``).
        """
        from .store import save

        return save(self, path)
