"""The graph of a story: which sites it has, what each depends on, and how it uses zbar.

An engine never knows which model it runs. It learns what it needs by running the story on two or three documents:
with two different numbers of documents to see which axes are documents, and through NumPyro's provenance tracking to
see which density reads which site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.ops.provenance import eval_provenance

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, documents
from topiczoo.models.arguments import BadArgument

from .faults import why_not
from .labels import CLASSES, labels_as_codes, warn_of_order
from .parameters import check_parameters, parameters
from .tracing import Story, Values, ZbarHandler, base_distribution, log_prob, run
from .validation import check_corpus, check_covariates, check_response, in_order, refuse_too_large

ZBAR, THETA, BETA, LABEL, PARAMETERS = "~zbar", "~theta", "~beta", "~label", "~parameters"  # names no site can have


@dataclass(frozen=True)
class Site:
    """A latent site of a story."""

    name: str
    fn: Any  # its distribution on the graph's few documents
    shape: tuple[int, ...]
    document_axis: int | None  # which axis is documents, if one is

    @property
    def prior(self) -> Any:
        """The distribution without the wrappers NumPyro puts around it."""
        return base_distribution(self.fn)

    @property
    def discrete(self) -> bool:
        return self.fn.support.is_discrete


class MissingAbove(ValueError):
    """Responses are missing of which something is drawn."""


class StoryGraph:
    """What an engine knows of a story. ``values`` below are of the latent sites, on the corpus or on a slice of it."""

    def __init__(self, story: Story, corpus: Corpus, y: Any = None, *, predicting: bool = False) -> None:
        self.story = story
        self.corpus, self.y = corpus, y
        self.known: Any = None  # codes of a latent class where it is known, NaN where not, [documents]; see read
        self.theta: Any = None  # name of the site given to draw_words as theta, if it is a site; likewise beta
        self.beta: Any = None
        self.num_topics: Any = None
        story.unlabelled = any(np.isnan(leaf).any() for leaf in jax.tree.leaves(y))
        rows = np.resize(self._typical_rows(), 3)
        self.few_corpus = corpus[rows]
        self._slices = {n: self._slice(rows[:n]) for n in (2, 3)}
        self.few_documents, self.few_y = self._slices[3]
        first, second = self._look(2), self._look(3)
        self.latent = {
            name: Site(name, site["fn"], shape, _changed_axis(first[name][1], shape))
            for name, (site, shape, _) in second.items() if not site["is_observed"]
        }  # fmt: skip
        self.observed = tuple(name for name, (site, _, _) in second.items() if site["is_observed"])
        self.density_axis = {name: _changed_axis(first[name][2], shape) for name, (_, _, shape) in second.items()}
        self._families = {name: _family(site["fn"]) for name, (site, _, _) in second.items()}
        refuse_too_large(self)
        # parameters of the sites and the constraints on them; those of latent sites are taken out by _parents
        self.fixed = {
            name: {parameter: constraint for parameter, (_, constraint) in parameters(site["fn"]).items()}
            for name, (site, _, _) in second.items()
        }
        self.parents = self._parents()
        story.dims = self._dims(second)
        if not predicting:
            self._refuse_absent_response()
            check_parameters(self)  # makes few_values now, not for the first time while something is compiled
            if story.unlabelled and y is not None:
                self._refuse_missing_above()

    def _typical_rows(self) -> np.ndarray:
        """A few documents, labelled ones first."""
        if self.y is None:
            return np.arange(min(3, len(self.corpus)))
        leaves = [np.asarray(leaf).reshape(len(self.corpus), -1) for leaf in jax.tree.leaves(self.y)]
        missing = np.any([np.isnan(leaf.astype(float)).any(1) for leaf in leaves], axis=0)
        return np.argsort(missing, kind="stable")[:3]

    def _slice(self, rows: np.ndarray) -> tuple[Documents, Any]:
        return documents(self.corpus[rows], pairs=True), jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], self.y)

    def _look(self, n: int) -> dict[str, tuple[dict, tuple, tuple]]:
        """Run the story abstractly on n documents: each sample site, its value's shape and its density's shape."""
        answer, seen = ZbarHandler(zbar=lambda theta: theta), {}

        def look() -> None:
            trace = run(self.story, *self._slices[n], {}, answer)
            sites = [site for site in trace.values() if site["type"] == "sample"]
            for site in sites:
                value_shape = () if isinstance(site["value"], tuple) else jnp.shape(site["value"])
                seen[site["name"]] = site, value_shape, jnp.shape(log_prob(site))
            # theta and beta are sites when the very arrays given to draw_words are their values
            self.theta = next((site["name"] for site in sites if site["value"] is answer.theta), None)
            self.beta = next((site["name"] for site in sites if site["value"] is answer.beta), None)
            self.deterministic = tuple(name for name, site in trace.items() if site["type"] == "deterministic")

        try:
            jax.eval_shape(look)
        except BadArgument:
            raise
        except Exception as error:
            raise why_not(error, self.story, self.corpus, self.y, n) from error
        if answer.calls > 1:
            raise ValueError(f"The story {self.story.name!r} calls draw_words {answer.calls} times; call it once.")
        self.has_words = answer.calls == 1
        self.has_labels = answer.label is not None
        self.linear = answer.linear
        self.num_topics = answer.theta.shape[-1] if self.has_words else None
        self.predictor_shapes = tuple(eta.shape[1:] for eta in answer.coefficients)
        return seen

    def _dims(self, sites: Mapping[str, tuple]) -> dict[str, tuple[str | None, ...]]:
        """Names of the axes of every site: an axis is topics if it grows when the story has one topic more, and so on."""
        variants = {}
        topics = self.story.arguments.get("num_topics", self.story.defaults.get("num_topics"))
        if topics is not None:
            variants["topic"] = (
                self._slices[3][0],
                Story(self.story.function, {**self.story.arguments, "num_topics": topics + 1}),
            )
        corpus = self._slices[3][0]
        longer = {name: _one_more(value, corpus.num_terms) for name, value in self.story.arguments.items()}
        variants["term"] = replace(corpus, num_terms=corpus.num_terms + 1), Story(self.story.function, longer)
        axes = {name: {self.latent[name].document_axis: "document"} for name in self.latent}
        for dim, (documents_, story) in variants.items():
            shapes: dict[str, tuple] = {}

            def look() -> None:
                trace = run(story, documents_, self._slices[3][1], {}, ZbarHandler(zbar=lambda theta: theta))
                shapes.update({name: jnp.shape(trace[name]["value"]) for name in self.latent})

            try:
                jax.eval_shape(look)
            except Exception:
                continue  # an argument of fixed length (an alpha for each topic): this axis stays without a name
            for name, shape in shapes.items():
                axes[name].setdefault(_changed_axis(self.latent[name].shape, shape), dim)
        return {
            name: tuple(axes[name].get(axis) for axis in range(-len(site.shape), 0))
            for name, site in self.latent.items()
        }

    @staticmethod
    def _given(fn: Any, names: Iterable[str]) -> dict[str, jax.Array]:
        given = parameters(fn)
        return {name: jnp.asarray(given[name][0]) for name in names}

    @cached_property
    def _few(self) -> tuple[dict[str, jax.Array], dict[str, dict[str, jax.Array]]]:
        @jax.jit
        def draw(few: Any) -> tuple[dict, dict]:
            few_documents, few_y = few
            trace = run(self.story, few_documents, few_y, {}, ZbarHandler(zbar=lambda theta: theta))
            values = {name: jnp.asarray(trace[name]["value"]) for name in self.latent}
            return values, {name: self._given(trace[name]["fn"], names) for name, names in self.fixed.items()}

        return draw(self._slices[3])

    @property
    def few_values(self) -> dict[str, jax.Array]:
        """Some feasible value of every latent site on the few documents."""
        return self._few[0]

    @property
    def fixed_values(self) -> dict[str, dict[str, jax.Array]]:
        """Parameters of sites that no latent site enters, on the few documents."""
        return self._few[1]

    def _parents(self) -> dict[str, frozenset[str]]:
        """For each site the latent sites its density reads, itself included; ZBAR stands for the words' topics."""

        def densities(**values: jax.Array) -> dict[str, Any]:
            zbar = values.pop(ZBAR, None)
            answer = ZbarHandler(zbar)
            trace = run(self.story, *self._slices[3], values, answer)
            sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
            out: dict[str, Any] = {name: log_prob(site) for name, site in sites.items()}
            out[PARAMETERS] = {name: self._given(site["fn"], self.fixed[name]) for name, site in sites.items()}
            out.update({name: site["value"] for name, site in trace.items() if site["type"] == "deterministic"})
            if answer.calls:
                out[THETA], out[BETA] = answer.theta, answer.beta
                out |= {LABEL: answer.label} if self.has_labels else {}
            return out

        # of the values only shapes are looked at
        values = {name: jnp.zeros(site.shape, int if site.discrete else float) for name, site in self.latent.items()}
        if self.has_words:
            values[ZBAR] = jnp.zeros((3, self.num_topics))
        read = eval_provenance(densities, **values)
        above = read.pop(PARAMETERS)
        self.fixed = {
            site: {name: what for name, what in given.items() if not above[site][name]}
            for site, given in self.fixed.items()
        }
        return read

    def _refuse_absent_response(self) -> None:
        for name in self.response_sites:
            if name in self.latent and self.children([name]) == {name}:
                raise ValueError(
                    f"y is missing: nothing is observed at or below the site {name!r} of the story {self.story.name!r}; "
                    "pass y, with NaN for unlabelled documents."
                )

    def _refuse_missing_above(self) -> None:
        """A missing response is masked where it is observed; what is drawn given it would read a value made up for it."""
        few_documents, few_y = self._slices[3]
        leaves, form = jax.tree.flatten(few_y)

        def look(**parts: jax.Array) -> dict[str, Any]:
            y, answer = jax.tree.unflatten(form, parts.values()), ZbarHandler(lambda theta: theta)
            trace = run(self.story, few_documents, y, self.few_values, answer)
            sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
            values = {f"value of {name}": site["value"] for name, site in sites.items()}
            return values | {name: log_prob(site) for name, site in sites.items()}

        read = eval_provenance(look, **{f"part {i}": leaf for i, leaf in enumerate(leaves)})
        for name in (*self.latent, *self.observed):
            own = jax.tree.leaves(read[f"value of {name}"], is_leaf=lambda part: isinstance(part, frozenset))
            if read[name] and not any(own):
                raise MissingAbove(
                    f"y is missing for some documents, and in the story {self.story.name!r} the site {name!r} depends on "
                    "it; leave those documents out, and predict them."
                )

    @cached_property
    def response_sites(self) -> tuple[str, ...]:
        """Sites whose density reads zbar."""
        return tuple(name for name, read in self.parents.items() if ZBAR in read and name in self.density_axis)

    def family(self, name: str) -> type:
        """The class of a site's distribution, without NumPyro's wrappers."""
        return self._families[name]

    def children(self, sites: Sequence[str]) -> set[str]:
        """Sites whose density reads any of the given ones."""
        return {name for name, read in self.parents.items() if read & set(sites) and name in self.density_axis}

    def drives_words(self, sites: Sequence[str]) -> bool:
        """Whether theta, beta or the label, as given to draw_words, depend on these sites."""
        return any(self.parents.get(part, frozenset()) & set(sites) for part in (THETA, BETA, LABEL))

    def take(self, values: Values, rows: Any) -> dict[str, Any]:
        """The values that belong to some documents; sites without documents as they are."""
        return {
            name: value if (axis := self.latent[name].document_axis) is None else jnp.take(value, rows, axis=axis)
            for name, value in values.items() if name in self.latent
        }  # fmt: skip

    def document_terms(
        self, sites: Sequence[str], corpus: Any, y: Any, values: Values, answer: ZbarHandler
    ) -> jax.Array:
        """The log-densities of some sites, summed for each document, [documents]."""
        trace = run(self.story, corpus, y, values, answer)
        total = jnp.zeros(corpus.num_documents)
        for name in sites:
            axis = self.density_axis[name]
            if axis is None:
                raise ValueError(
                    f"The site {name!r} of the story {self.story.name!r} links documents: it reads zbar but has no axis "
                    "of documents, so topics cannot be drawn for documents side by side; give each document its own term."
                )
            terms = jnp.moveaxis(log_prob(trace[name]), axis, -1)
            total = total + terms.sum(tuple(range(terms.ndim - 1)))
        return total

    def refuse_linked_documents(self) -> None:
        """Topics are drawn for all documents at once: one document's topics must not enter another's terms."""
        if not self.response_sites:
            return
        corpus, y = self.few_documents, self.few_y
        zbar = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(self.num_topics), 3), jnp.float32)

        def terms(places: Sequence[int], zbar: jax.Array) -> np.ndarray:
            rows = jnp.asarray(places)
            few = jax.tree.map(lambda leaf: leaf[rows], y)
            values = self.take(self.few_values, rows)
            evaluate = jax.jit(
                lambda zbar: self.document_terms(self.response_sites, corpus.take(rows), few, values, ZbarHandler(zbar))
            )
            return np.asarray(evaluate(zbar[rows]))

        whole = terms([0, 1, 2], zbar)
        moved = terms([0, 1, 2], zbar.at[2].set(jnp.roll(zbar[2], 1)))
        if not (
            np.allclose(whole[:2], terms([0, 1], zbar), rtol=1e-4) and np.allclose(whole[:2], moved[:2], rtol=1e-4)
        ):
            raise ValueError(
                f"The story {self.story.name!r} links documents: another document's topics change a document's terms at "
                f"{', '.join(map(repr, self.response_sites))}, so topics cannot be drawn for documents side by side; "
                "do not centre or rank the predictor within the story."
            )


def _family(fn: Any) -> type:
    return type(base_distribution(fn))


def _one_more(value: Any, num_terms: int) -> Any:
    """An argument of the story for one term more, where it is an array with a number for each term."""
    if not isinstance(value, np.ndarray | jax.Array | list) or np.shape(value) != (num_terms,):
        return value
    return np.append(np.asarray(value), 0.0)


def _changed_axis(small: tuple[int, ...], large: tuple[int, ...]) -> int | None:
    """The axis, counted from the end, along which two shapes differ."""
    changed = [axis for axis in range(-len(large), 0) if small[axis] != large[axis]]
    return changed[0] if changed else None


def read(
    function: str | Callable, corpus: Corpus, y: Any, arguments: Mapping[str, Any], *, latent_classes: bool = False
) -> StoryGraph:
    """Check what the user gave and read the story.

    ``latent_classes``: a class above the words may be missing for some documents. It is then a latent site, and
    ``graph.known`` holds what is known of it.
    """
    from .support import check_support, check_variety, observed, warn_of_scale

    story = Story(function, arguments)
    check_corpus(corpus)
    check_covariates(corpus, story.arguments.get("covariates", ()))
    y = in_order(corpus, y)
    codes, story.classes = labels_as_codes(y)
    codes = check_response(story, corpus, codes)
    try:
        graph = StoryGraph(story, corpus, codes)
    except MissingAbove:
        if not latent_classes or isinstance(codes, dict) or codes.ndim > 1:
            raise
        rows = np.flatnonzero(~np.isnan(codes))
        read(function, corpus[rows], codes[rows], arguments)  # what is known is checked like any other response
        graph = StoryGraph(story, corpus)
        if graph.has_words and not graph.parents.get(LABEL):
            raise
        graph.known = codes
        return graph
    if story.classes is not None:
        families = [graph.family(name) for name in graph.observed]
        if any(issubclass(family, dist.OrderedLogistic) for family in families):
            warn_of_order(y, story.classes)
        elif not any(issubclass(family, CLASSES) for family in families):
            story.classes = None
            graph = StoryGraph(story, corpus, check_response(story, corpus, y))
    seen = observed(graph)
    check_support(graph, seen)
    check_variety(graph, seen)
    warn_of_scale(graph, seen)
    return graph
