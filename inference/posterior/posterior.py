"""A posterior: what an engine has found of a story, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypedDict

import numpy as np

from topiczoo.corpora import Corpus

from ..story.bound import BoundGraph
from ..story.graph import Dims, StoryGraph
from ..story.response import Response, Y
from ..story.tracing import Story

NARROW = (
    "Intervals of a fit by {} are too narrow, those of 90% may hold 80%: a variational posterior leaves out much of what is "
    "not known; give predict documents set aside, calibrate=(corpus, y), or fit by gibbs."
)
STATISTIC_DIMS: dict[str, Dims] = {"usage": ("topic",)}  # axes of statistics, beside chain and draw


class RunInfo(TypedDict, total=False):
    """What an engine says of its run; each says some of these."""

    seed: int
    num_warmup: int
    thinning: int
    blocks: dict[str, str]  # which block has drawn which site
    as_means: list[str]  # sites too large for every draw
    interrupted: bool
    checkpoint: str  # the folder of its checkpoints, where it had any
    divergences: int
    target: str  # of svi and nuts, in words
    guide: str
    batch_size: int | None
    num_steps: int
    learning_rate: float
    losses: np.ndarray
    bound: np.ndarray
    converged: bool
    num_documents: int  # that were read in minibatches, of which the fit's corpus is a sample
    passes: int  # through them
    steps: int  # minibatches
    kappa: float
    tau: float
    seconds: float
    response_weight: float  # the power of the response's likelihood
    held_out: list[int]  # rows of documents whose responses counted for scales alone, where that is not 1
    alpha: np.ndarray  # theta's prior, where the engine has estimated it
    platform: str
    devices: int
    versions: dict[str, str]
    standardised: tuple[float, float]  # shift and scale of the response, where it was standardised
    story_source: str  # the story's text when the fit was saved


def serving(info: Mapping[str, Any]) -> str:
    """What a weight of the response makes of topics, in words; nothing where the fit is of the posterior."""
    weight = float(info.get("response_weight") or 1.0)
    if weight == 1:
        return ""
    what = "topics serve the predictions" if weight > 1 else "topics follow the words"
    return f"{what}: with response_weight={weight:g} they are no draws of the posterior"


@dataclass
class Posterior:
    """Posterior draws of a story, with what is needed to predict from them.

    Attributes
    ----------
    story, graph
        The story with its arguments, and its sites with their axes and roles.
    corpus, response
        What was fitted: the documents, and their responses with NaN for the unlabelled.
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
    topic_names
        Names of the topics in their order, where they have been given any (:meth:`.Fit.rename`).
    """

    story: Story
    graph: StoryGraph
    corpus: Corpus
    response: Response
    draws: dict[str, np.ndarray]
    engine: str
    info: RunInfo = field(default_factory=lambda: RunInfo())
    statistics: dict[str, np.ndarray] = field(default_factory=dict)
    means: dict[str, np.ndarray] = field(default_factory=dict)
    snapshots: dict[str, np.ndarray] = field(default_factory=dict)
    snapshot_index: np.ndarray = field(default_factory=lambda: np.arange(0))
    importance_ratios: Callable[[], tuple[np.ndarray, np.ndarray | None]] | None = None
    topic_names: np.ndarray | None = None

    topics_are_matched = False  # across chains

    def __post_init__(self) -> None:
        for name in ("draws", "statistics", "means", "snapshots"):
            setattr(self, name, {site: np.asarray(value) for site, value in getattr(self, name).items()})
        self.compiled: dict[Any, Any] = {}  # what prediction has compiled
        self.temperatures: dict[tuple, float | None] = {}  # of classes, see predictive.probabilities
        self.unsaid = [NARROW.format(self.engine)] if self.engine in ("vem", "svi") else []  # warnings, each said once

    @classmethod
    def of(cls, graph: BoundGraph, draws: Mapping[str, Any], *, engine: str, **rest: Any) -> Self:
        """What an engine has drawn of a story on the documents that it was read on."""
        response = (
            graph.response if graph.known is None else Response({"y": graph.known}, classes=graph.response.classes)
        )
        return cls(graph.story, graph.unbound(), graph.corpus, response, dict(draws), engine, **rest)

    @classmethod
    def like(cls, other: Posterior) -> Self:
        """The same posterior as one of this class."""
        return cls(**{part.name: getattr(other, part.name) for part in fields(Posterior)})

    def __copy__(self) -> Self:
        """A copy starts without what prediction has made: its draws may be changed."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"compiled": {}, "temperatures": {}}
        return other

    def __getstate__(self) -> dict[str, Any]:
        """A pickle has neither that nor the guide, whose compiled programs stay with the process, as in a file."""
        return {**self.__dict__, "compiled": {}, "temperatures": {}, "importance_ratios": None}

    def __repr__(self) -> str:
        chains, draws = next(iter({**self.snapshots, **self.draws}.values())).shape[:2]
        kind, sites = type(self).__name__, ", ".join(self.sites)
        weight = f"; {why}" if (why := serving(self.info)) else ""
        return f"{kind} of {self.story.name} by {self.engine}: {chains} chains of {draws} draws, sites {sites}{weight}"

    @property
    def y(self) -> Y:
        """The response as the story takes it, None without one."""
        return self.response.y

    @property
    def classes(self) -> np.ndarray | None:
        """The labels in the order of their codes in y; None where y came as numbers."""
        return self.response.classes

    @property
    def vocabulary(self) -> np.ndarray:
        """The terms, in the order of the axis ``term``."""
        return np.asarray(self.corpus.vocabulary)

    @property
    def document_names(self) -> np.ndarray:
        """Names of the fitted documents, in the order of the axis ``document``."""
        return np.asarray(self.corpus.names)

    @property
    def sites(self) -> tuple[str, ...]:
        """Every site of which there are draws or means."""
        return tuple({**self.draws, **self.snapshots, **self.means})

    @property
    def has_topics(self) -> bool:
        """Whether words have topics of their own, or any site an axis of topics; naive Bayes has neither."""
        return self.graph.has_words or any("topic" in dims for dims in self.graph.dims.values())

    @property
    def coefficients(self) -> list[str]:
        """Sites of numbers of topics that a response reads."""
        return [name for name in self.graph.with_role("coefficients") if name in self.draws]

    def by_topic(self, site: str) -> np.ndarray:
        """Draws of a site of topics, [chain, draw, topic, ...], whichever of its axes that of topics is."""
        return np.moveaxis(self.draws[site], 2 + self.graph.dims[site].index("topic"), 2)

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
        if len(means) > 1 and not self.topics_are_matched and "topic" in self.graph.dims.get(site, ()):
            raise ValueError(
                f"site is {site!r}, and its topics are not the same in each of the {len(means)} chains; give chain=0, or "
                "match them first: diagnostics.align(fit).mean(...)."
            )
        return means.mean(0)

    def global_draws(self, most: int | None = None) -> dict[str, np.ndarray]:
        """Draws [chain, draw, ...] of all sites that are not of documents, at draws where all of them are stored.

        What the story computes from sites is computed again, of whatever documents it runs on.
        """
        computed = self.graph.deterministic
        of_corpus = [n for n in self.draws if n not in computed and "document" not in self.graph.dims.get(n, ())]
        draws = {name: self.draws[name] for name in of_corpus}
        if self.snapshots:
            draws = {name: value[:, self.snapshot_index] for name, value in draws.items()} | self.snapshots
        length = next(iter(draws.values())).shape[1]
        if most is not None and length > most:
            draws = {name: value[:, np.linspace(0, length - 1, most).astype(int)] for name, value in draws.items()}
        return draws

    def global_means(self, chain: int) -> dict[str, np.ndarray]:
        """A chain's posterior means of all sites that are not of documents."""
        draws = self.global_draws()
        return {name: self.means[name][chain] if name in self.means else draws[name][chain].mean(0) for name in draws}
