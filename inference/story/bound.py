"""A story's graph together with the documents and responses it was read on: what an engine works with.

An engine never knows which model it runs: what it needs to know was read off the story (:mod:`.reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, documents

from ..programs.compiling import jitted
from ..programs.keeping import Unkeyed, frozen, keep, shapes
from .graph import StoryGraph
from .response import Response, Y
from .tracing import Story, Values, ZbarHandler, by_document, log_prob, parameters, run, traced

FEW = 3  # documents on which a story is read


@dataclass(frozen=True)
class BoundGraph(StoryGraph):
    """``values`` below are of the latent sites, on the corpus or on a slice of it."""

    story: Story = None  # type: ignore[assignment]  # after fields with defaults
    corpus: Corpus = None  # type: ignore[assignment]
    response: Response = None  # type: ignore[assignment]
    few_corpus: Corpus = None  # type: ignore[assignment]  # some documents, labelled ones first
    few_documents: Documents = None  # type: ignore[assignment]
    few_y: Y = None
    fixed: dict[str, dict[str, Any]] = None  # type: ignore[assignment]  # constraints on parameters that no latent site enters
    covariates: frozenset[str] = frozenset()  # columns that the story reads
    known: np.ndarray | None = None  # codes of a latent class where it is known, NaN where not, [documents]
    held_out: tuple[int, ...] = ()  # rows of documents whose responses count for scales alone, under a weight of them
    computation: str | None = None  # what the story was seen to compute, in few letters

    @property
    def y(self) -> Y:
        """The response as the story takes it."""
        return self.response.y

    def bare(self) -> BoundGraph:
        """The same without the corpus and the story's numbers, for compiled code, which must not hold them."""
        few = replace(self.few_documents, arguments={})
        story = self.story.without_numbers()
        return replace(self, corpus=self.few_corpus, response=Response({}), story=story, few_documents=few)

    def documents(self, **layouts: Any) -> Documents:
        """The corpus in some layouts, with the story's numbers: what compiled code is given."""
        return replace(documents(self.corpus, **layouts), arguments=self.story.given)

    @cached_property
    def form(self) -> Hashable:
        """All that a program depends on but for documents and numbers; None where that cannot be told.

        A story may read what its function does not show, a variable of the user's say: what it was seen to compute counts.
        """
        if self.story.form is None or self.computation is None:
            return None
        columns = tuple((name, str(column.dtype)) for name, column in self.few_documents.covariates.items())
        y = jax.tree.map(lambda part: jax.ShapeDtypeStruct(part.shape[1:], part.dtype), self.few_y)
        told = {name: tuple(given) for name, given in self.fixed.items()}
        return (
            self.story.form,
            self.computation,
            self.few_documents.num_terms,
            columns,
            shapes(y),
            bool(self.held_out),
            frozen((self.known, told, {name: site.axes for name, site in self.sites.items()})),
        )

    def for_programs(self) -> BoundGraph:
        """What compiled code may hold of it: itself only where that cannot be kept."""
        return self if self.form is None else self.bare()

    def program(self, function: Callable, *fixed: Any) -> Callable:
        """``function(graph, *fixed, ...)`` compiled as a function of the rest, and kept for graphs of the same form.

        The graph that it is given has no corpus, and its story no numbers: documents bring them along
        (:meth:`documents`, ``few_documents``).
        """
        try:
            key = function, frozen(fixed), frozen(self)
        except Unkeyed:
            return jitted(traced(partial(function, self, *fixed)), once=True)
        bare = self.bare()
        return keep(key, lambda: jitted(traced(partial(function, bare, *fixed)), once=True, form=key))

    def unbound(self) -> StoryGraph:
        """The graph alone."""
        fields = {name: getattr(self, name) for name in StoryGraph.__dataclass_fields__}
        sites = {
            name: replace(site, fn=None) for name, site in self.sites.items()
        }  # distributions hold what was traced
        return StoryGraph(**fields | {"sites": sites})

    def family(self, name: str) -> type:
        """The class of a site's distribution, without NumPyro's wrappers."""
        return type(self.sites[name].prior)

    @cached_property
    def _few(self) -> tuple[dict[str, jax.Array], dict[str, dict[str, jax.Array]]]:
        return self.program(_feasible)(self.few_documents, self.few_y)

    @property
    def few_values(self) -> dict[str, jax.Array]:
        """Some feasible value of every latent site on the few documents."""
        return self._few[0]

    @property
    def fixed_values(self) -> dict[str, dict[str, jax.Array]]:
        """Parameters of sites that no latent site enters, on the few documents."""
        return self._few[1]

    def take(self, values: Values, rows: Any) -> dict[str, Any]:
        """The values that belong to some documents; sites without documents as they are."""
        return {
            name: value if (axis := self.sites[name].document_axis) is None else jnp.take(value, rows, axis=axis)
            for name, value in values.items() if name in self.sites and not self.sites[name].observed
        }  # fmt: skip

    def document_terms(
        self, sites: Sequence[str], documents: Documents, y: Y, values: Values, handler: ZbarHandler
    ) -> jax.Array:
        """The log-densities of some sites, summed for each document, [documents]."""
        trace = run(self.story, documents, y, values, handler)
        total = jnp.zeros(documents.num_documents)
        for name in sites:
            axis = self.sites[name].density_axis
            if axis is None:
                raise ValueError(
                    f"The site {name!r} of the story {self.story.name!r} links documents: it reads zbar but has no axis "
                    "of documents, so topics cannot be drawn for documents side by side; give each document its own term."
                )
            total = total + by_document(log_prob(trace[name]), axis)
        return total

    def refuse_linked_documents(self) -> None:
        """Topics are drawn for all documents at once: one document's topics must not enter another's terms."""
        if not self.response_sites:
            return
        zbar = np.random.default_rng(0).dirichlet(np.ones(self.num_topics), FEW).astype(np.float32)

        whole, moved, alone = self.program(_terms_apart)(self.few_documents, self.few_y, self.few_values, zbar)
        if not all(np.allclose(whole, others, rtol=1e-4) for others in (moved, alone)):
            raise ValueError(
                f"The story {self.story.name!r} links documents: another document's topics change a document's terms at "
                f"{', '.join(map(repr, self.response_sites))}, so topics cannot be drawn for documents side by side; "
                "do not centre or rank the predictor within the story."
            )


def _feasible(graph: BoundGraph, few: Documents, y: Y) -> tuple[dict, dict]:
    """Some value of every latent site, and parameters of sites that no latent site enters."""
    trace = run(graph.story, few, y, {}, ZbarHandler(zbar=lambda theta: theta))
    values = {name: jnp.asarray(trace[name]["value"]) for name in graph.latent}
    return values, {name: as_arrays(trace[name]["fn"], names) for name, names in graph.fixed.items()}


def _terms_apart(graph: BoundGraph, few: Documents, y: Y, values: Values, zbar: jax.Array) -> tuple[jax.Array, ...]:
    """The first documents' terms: as they are, with other topics of the last document, and without it."""

    def terms(zbar: jax.Array) -> jax.Array:
        return graph.document_terms(graph.response_sites, few, y, values, ZbarHandler(zbar))

    first = jnp.arange(FEW - 1)
    whole, moved = jax.lax.map(terms, jnp.stack([zbar, zbar.at[-1].set(jnp.roll(zbar[-1], 1))]))
    few, y, values = few.take(first), jax.tree.map(lambda leaf: leaf[first], y), graph.take(values, first)
    return whole[first], moved[first], terms(zbar[first])


def as_arrays(fn: Any, names: Iterable[str]) -> dict[str, jax.Array]:
    """Some parameters of a distribution."""
    given = parameters(fn)
    return {name: jnp.asarray(given[name][0]) for name in names}
