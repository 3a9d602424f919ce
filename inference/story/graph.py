"""The graph of a story: its sites with their axes and roles, and which density reads which site.

It is all that a fit must remember of how its story was read, and it can be written as JSON. What engines work with, the
graph together with the documents and responses that it was read on, is :class:`.bound.BoundGraph`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpyro.distributions as dist

from .tracing import base_distribution

# names no site can have
ZBAR, THETA, BETA, LABEL, SWITCH, PARAMETERS = "~zbar", "~theta", "~beta", "~label", "~switch", "~parameters"
DOCUMENT, TOPIC, TERM, OF_LABEL = "document", "topic", "term", "label"  # names of axes

Dims = tuple[str | None, ...]


@dataclass(frozen=True)
class Site:
    """A sample site of a story.

    ``role`` is one of

    ================  =======================================================================================
    ``proportions``   the very array that is handed to ``draw_words`` as theta
    ``topics``        the very array that is handed to ``draw_words`` or ``draw_bags`` as beta
    ``coefficients``  numbers of topics, and no shares, that the density of an observed site reads
    ``class``         one discrete value a document that words depend on
    ``response``      what follows from zbar, at once or by way of other sites, and is observed or read by nothing
    ``words``         the words of ``draw_bags``
    ``document``      any other site with an axis of documents
    ``global``        any other site
    ================  =======================================================================================
    """

    name: str
    family: str  # of its distribution, without NumPyro's wrappers
    axes: Dims
    role: str
    observed: bool
    discrete: bool
    shape: tuple[int, ...] = ()  # on the few documents on which the story was read
    density_axis: int | None = None  # which axis of its density is documents, counted from the end
    fn: Any = field(default=None, compare=False, repr=False)  # its distribution there; none after loading

    @property
    def prior(self) -> Any:
        """The distribution without NumPyro's wrappers."""
        return base_distribution(self.fn)

    @property
    def document_axis(self) -> int | None:
        """Which axis is documents, if one is, counted from the end."""
        return self.axes.index(DOCUMENT) - len(self.axes) if DOCUMENT in self.axes else None


@dataclass(frozen=True)
class StoryGraph:
    """What is known of a story. ``parents`` names sites, deterministic sites, and what words are drawn with."""

    sites: dict[str, Site]
    parents: dict[
        str, frozenset[str]
    ]  # the latent sites that a density reads, itself included; ZBAR for the words' topics
    deterministic: tuple[str, ...] = ()
    theta: str = ""  # the site handed to draw_words as theta, empty if it is none; likewise beta
    beta: str = ""
    num_topics: int = 0  # of draw_words
    has_words: bool = False  # whether words have topics of their own
    has_labels: bool = False  # whether topics are those of a document's label
    has_sentences: bool = False  # whether words of a sentence share their topic
    linear: bool = True  # whether zbar is used in zbar @ eta alone
    predictor_shapes: tuple[tuple[int, ...], ...] = ()  # of each zbar @ eta, without its documents

    @property
    def latent(self) -> dict[str, Site]:
        return {name: site for name, site in self.sites.items() if not site.observed}

    @property
    def observed(self) -> tuple[str, ...]:
        return tuple(name for name, site in self.sites.items() if site.observed)

    @property
    def dims(self) -> dict[str, Dims]:
        """Names of the axes of every latent site."""
        return {name: site.axes for name, site in self.latent.items()}

    @property
    def topics(self) -> str:
        """The site of topics and terms that words are drawn with; empty where it is none."""
        return next((name for name in self.with_role("topics") if self.sites[name].axes == (TOPIC, TERM)), "")

    @property
    def of_labels(self) -> tuple[str, ...]:
        """Sites with numbers for every label and term, in a story whose words have no topics."""
        return tuple(name for name, axes in self.dims.items() if axes == (OF_LABEL, TERM))

    @property
    def density_axis(self) -> dict[str, int | None]:
        return {name: site.density_axis for name, site in self.sites.items()}

    def with_role(self, role: str) -> tuple[str, ...]:
        """The sites that have a role."""
        return tuple(name for name, site in self.sites.items() if site.role == role)

    @property
    def response_sites(self) -> tuple[str, ...]:
        """Sites whose density reads zbar."""
        return tuple(name for name, read in self.parents.items() if ZBAR in read and name in self.sites)

    def children(self, sites: Collection[str]) -> set[str]:
        """Sites whose density reads any of the given ones."""
        return {name for name, read in self.parents.items() if read & set(sites) and name in self.sites}

    def drives_words(self, sites: Collection[str]) -> bool:
        """Whether theta, beta, the label or the switch, as given to draw_words, depend on these sites."""
        return any(self.parents.get(part, frozenset()) & set(sites) for part in (THETA, BETA, LABEL, SWITCH))

    def theta_is_integrable(self) -> bool:
        """Whether theta is a Dirichlet site of documents that words alone read."""
        return (
            bool(self.theta)
            and isinstance(self.sites[self.theta].prior, dist.Dirichlet)
            and self.sites[self.theta].document_axis == -2
            and self.children([self.theta]) == {self.theta}
            and self.parents[THETA] == {self.theta}
            and self.theta not in self.parents[BETA]
            and not any(self.theta in self.parents[name] for name in self.deterministic)
        )

    def beta_is_integrable(self) -> bool:
        """Whether beta is a Dirichlet site that words alone read."""
        return (
            bool(self.beta)
            and self.children([self.beta]) == {self.beta}
            and isinstance(self.sites[self.beta].prior, dist.Dirichlet)
        )

    def as_json(self) -> dict[str, Any]:
        """The graph in what JSON knows."""
        sites = [
            {
                "name": site.name, "family": site.family, "axes": list(site.axes), "role": site.role,
                "observed": site.observed, "discrete": site.discrete,
            }
            for site in self.sites.values()
        ]  # fmt: skip
        return {
            "sites": sites,
            "parents": {name: sorted(read) for name, read in self.parents.items()},
            "deterministic": list(self.deterministic),
            "theta": self.theta, "beta": self.beta, "num_topics": self.num_topics,
            "has_words": self.has_words, "has_labels": self.has_labels, "has_sentences": self.has_sentences,
            "linear": self.linear,
        }  # fmt: skip

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> StoryGraph:
        """A graph as :meth:`as_json` wrote it."""
        sites = {site["name"]: Site(**{**site, "axes": tuple(site["axes"])}) for site in told["sites"]}
        parents = {name: frozenset(read) for name, read in told["parents"].items()}
        rest = {name: told[name] for name in ("theta", "beta", "num_topics", "has_words", "has_labels", "linear")}
        rest["has_sentences"] = told.get("has_sentences", False)  # since there are such
        return cls(sites, parents, tuple(told["deterministic"]), **rest)

    @classmethod
    def from_dims(cls, dims: Mapping[str, Dims], shares: Collection[str] = ()) -> StoryGraph:
        """What can be told of a fit saved before graphs were: from the axes of its sites, and which of them are shares."""

        def first(axes: Dims) -> str:
            return next((name for name, own in dims.items() if own == axes), "")

        dims = {name: (OF_LABEL, TERM) if axes == (None, TERM) else tuple(axes) for name, axes in dims.items()}
        theta, beta = first((DOCUMENT, TOPIC)), first((TOPIC, TERM))
        roles = {name: "document" if DOCUMENT in axes else "global" for name, axes in dims.items()}
        for name, axes in dims.items():
            if axes[:1] == (TOPIC,) and not {TERM, DOCUMENT} & set(axes) and name not in shares:
                roles[name] = "coefficients"
        roles |= {theta: "proportions"} if theta else {}
        roles |= {beta: "topics"} if beta else {}
        sites = {name: Site(name, "", tuple(axes), roles[name], False, False) for name, axes in dims.items()}
        return cls(sites, {}, theta=theta, beta=beta if theta else "", has_words=bool(theta))
