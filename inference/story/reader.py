"""Reading a story: what it does with a few documents makes its graph.

A story is run on two or three documents: with two different numbers of documents to see which axes are documents, through
NumPyro's provenance tracking to see which density reads which site, and by following axes through the computation
(:mod:`.axes`) to see which are topics and terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.ops.provenance import eval_provenance

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, few_documents
from topiczoo.models.vocabulary.arguments import BadArgument
from topiczoo.models.vocabulary.words import BagOfWords

from ..programs.keeping import digest, keep
from .axes import joined_axes
from .bound import FEW, BoundGraph, as_arrays
from .faults import why_not
from .graph import BETA, DOCUMENT, LABEL, OF_LABEL, PARAMETERS, SWITCH, TERM, THETA, TOPIC, ZBAR, Dims, Site
from .response import Response, Y
from .tracing import Story, ZbarHandler, base_distribution, log_prob, parameters, run

COVARIATE = "~covariate "  # before the name of one
BAG = "~bag"  # the topics of draw_bags
CATEGORICAL = (dist.CategoricalProbs, dist.CategoricalLogits)


def bind(story: Story, corpus: Corpus, response: Response | None = None) -> BoundGraph:
    """Read a story on a corpus. Nothing is checked beyond that it runs, and that no site has a name of the words'."""
    graph = Reader(story, corpus, Response({}) if response is None else response).graph()
    named = {*graph.sites, *graph.deterministic} & {"z", "w", *(("taken",) if graph.has_sentences else ())}
    if graph.has_words and named:
        raise ValueError(
            f"The story {story.name!r} has a site {min(named)!r}, and draw_words calls words 'w' and their topics 'z'; give "
            "the site another name."
        )
    return graph


def site_shapes(story: Story, corpus: Corpus, response: Response) -> dict[str, tuple[int, ...]]:
    """The shape of every site on a few documents."""
    return {name: shape for name, (_, shape, _) in Reader(story, corpus, response)._look(FEW).items()}


class Reader:
    """Runs a story on a few documents and notes what it does."""

    def __init__(self, story: Story, corpus: Corpus, response: Response) -> None:
        self.story = replace(story, masked=response.missing, numbers=())
        self.corpus, self.response = corpus, response
        rows = np.resize(self._typical_rows(), FEW)
        self.rows = rows
        self.slices = {n: self._slice(rows[:n]) for n in (FEW - 1, FEW)}

    def _typical_rows(self) -> np.ndarray:
        """A few documents, labelled ones first."""
        if not self.response:
            return np.arange(min(FEW, len(self.corpus)))
        parts = [part.reshape(len(self.corpus), -1) for part in self.response.parts.values()]
        missing = np.any([np.isnan(part).any(1) for part in parts], axis=0)
        return np.argsort(missing, kind="stable")[:FEW]

    def _slice(self, rows: np.ndarray) -> tuple[Documents, Y]:
        return few_documents(self.corpus[rows]), self.response.take(rows).on_device()

    def graph(self) -> BoundGraph:
        fewer, shapes = self._look(FEW - 1), self._look(FEW)
        self.sites = {name: site for name, (site, _, _) in shapes.items()}
        self.latent = [name for name, site in self.sites.items() if not site["is_observed"]]
        fixed = {
            name: {parameter: constraint for parameter, (_, constraint) in parameters(site["fn"]).items()}
            for name, site in self.sites.items()
        }
        numbers, computation = self._computation(shapes, fixed)
        story = replace(self.story, numbers=numbers)
        document = {name: _changed_axis(fewer[name][1], shapes[name][1]) for name in shapes}

        def follow() -> tuple:
            parents, above, covariates = self._provenance(shapes, fixed)
            return parents, above, covariates, self._axes({n: shapes[n][1] for n in self.latent}, document, parents)

        # what reads what follows from what is computed
        known = computation is not None and story.form is not None
        key = Reader, story.form, computation, tuple(document.items()), tuple(self.slices[FEW][0].covariates)
        parents, above, covariates, axes = keep(key, follow) if known else follow()
        sites = {
            name: Site(
                name, type(base_distribution(site["fn"])).__name__, axes.get(name, ()),
                self._role(name, axes.get(name, ()), parents),
                site["is_observed"], bool(getattr(site["fn"].support, "is_discrete", False)), shape,
                _changed_axis(fewer[name][2], density), site["fn"],
            )
            for name, (site, shape, density) in shapes.items()
        }  # fmt: skip
        few, few_y = self.slices[FEW]
        return BoundGraph(
            sites=sites, parents=parents, deterministic=self.deterministic, theta=self.theta, beta=self.beta,
            num_topics=self.handler.theta.shape[-1] if self.handler.calls else 0,
            has_words=self.handler.calls == 1, has_labels=self.handler.label is not None,
            has_sentences=self.handler.switch is not None, linear=self.handler.linear,
            predictor_shapes=tuple(eta.shape[1:] for eta in self.handler.coefficients),
            story=story, corpus=self.corpus, response=self.response, few_corpus=self.corpus[self.rows],
            few_documents=replace(few, arguments=story.given), few_y=few_y, covariates=covariates,
            computation=computation,
            fixed={
                name: {what: given[what] for what in given if not above[name][what]} for name, given in fixed.items()
            },
        )  # fmt: skip

    def _look(self, n: int) -> dict[str, tuple[dict, tuple, tuple]]:
        """Run the story abstractly on n documents: each sample site, its value's shape and its density's shape."""
        self.handler = handler = ZbarHandler(zbar=lambda theta: theta)
        seen: dict[str, tuple[dict, tuple, tuple]] = {}

        def look() -> None:
            trace = run(self.story, *self.slices[n], {}, handler)
            sites = [site for site in trace.values() if site["type"] == "sample"]
            for site in sites:
                value_shape = () if isinstance(site["value"], tuple) else jnp.shape(site["value"])
                seen[site["name"]] = site, value_shape, jnp.shape(log_prob(site))
            bags = [fn for site in sites if isinstance(fn := base_distribution(site["fn"]), BagOfWords)]
            # theta and beta are sites when the very arrays that words are drawn with are their values
            self.theta = next((site["name"] for site in sites if site["value"] is handler.theta), "")
            self.beta = next((site["name"] for site in sites if site["value"] is handler.beta), "")
            self.bagged = {site["name"] for site in sites if any(site["value"] is fn.beta for fn in bags)}
            self.deterministic = tuple(name for name, site in trace.items() if site["type"] == "deterministic")

        try:
            jax.eval_shape(look)
        except BadArgument:
            raise
        except Exception as error:
            raise why_not(error, self.story, self.corpus, self.response.y, n) from error
        if handler.calls > 1:
            raise ValueError(f"The story {self.story.name!r} calls draw_words {handler.calls} times; call it once.")
        return seen

    def _values(self, shapes: dict[str, tuple]) -> dict[str, Any]:
        """The shapes of all that the story reads: of values nothing else is looked at."""
        discrete = {name: self.sites[name]["fn"].support.is_discrete for name in self.latent}
        values = {
            name: jax.ShapeDtypeStruct(shapes[name], jnp.int32 if discrete[name] else jnp.float32)
            for name in self.latent
        }
        if self.handler.calls:
            values[ZBAR] = jax.ShapeDtypeStruct((FEW, self.handler.theta.shape[-1]), jnp.float32)
        few = self.slices[FEW][0]
        return values | {f"{COVARIATE}{name}": column for name, column in few.covariates.items()}

    def _traced(self, values: dict[str, jax.Array]) -> tuple[dict[str, dict], ZbarHandler]:
        values = dict(values)
        few, y = self.slices[FEW]
        covariates = {name: values.pop(f"{COVARIATE}{name}") for name in few.covariates}
        handler = ZbarHandler(values.pop(ZBAR, None))
        return run(self.story, replace(few, covariates=covariates), y, values, handler), handler

    def _provenance(
        self, shapes: dict[str, tuple], fixed: dict[str, dict]
    ) -> tuple[dict[str, frozenset[str]], dict[str, dict[str, frozenset[str]]], frozenset[str]]:
        """What each density reads, what each parameter follows from, and the covariates that are read."""

        def densities(**values: jax.Array) -> dict[str, Any]:
            trace, handler = self._traced(values)
            sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
            out: dict[str, Any] = {name: log_prob(site) for name, site in sites.items()}
            out[PARAMETERS] = {name: as_arrays(site["fn"], fixed[name]) for name, site in sites.items()}
            out.update({name: site["value"] for name, site in trace.items() if site["type"] == "deterministic"})
            if handler.calls:
                out[THETA], out[BETA] = handler.theta, handler.beta
                out |= {} if handler.label is None else {LABEL: handler.label}
                out |= {} if handler.switch is None else {SWITCH: handler.switch}
            bags = [fn.z for site in sites.values() if isinstance(fn := base_distribution(site["fn"]), BagOfWords)]
            return out | ({BAG: bags} if bags else {})

        read = eval_provenance(densities, **self._values({name: shape for name, (_, shape, _) in shapes.items()}))
        above = read.pop(PARAMETERS)
        if BAG in read:
            read[BAG] = frozenset().union(*read[BAG])
        covariates = {name for part in read.values() for name in part if name.startswith(COVARIATE)}
        parents = {name: frozenset(part - covariates) for name, part in read.items()}
        found = {site: {what: part - covariates for what, part in given.items()} for site, given in above.items()}
        return parents, found, frozenset(name.removeprefix(COVARIATE) for name in covariates)

    def _computation(self, shapes: dict[str, tuple], fixed: dict[str, dict]) -> tuple[tuple[str, ...], str | None]:
        """Arguments that are numbers and that the story does nothing but compute with, and what it computes.

        A story that asks more of a number, by ``if`` say, stops where it is given one that is being traced.
        """
        known = {**self.story.defaults, **self.story.arguments}
        candidates = [name for name, value in known.items() if name in self.story.known and _is_number(value)]
        values = self._values({name: shape for name, (_, shape, _) in shapes.items()})
        few, y = self.slices[FEW]
        seen: dict[str, Any] = {}

        def look(given: dict[str, Any], few: Documents, y: Y, values: dict[str, Any]) -> dict[str, Any]:
            handler = ZbarHandler(values.get(ZBAR))
            trace = run(replace(self.story, numbers=tuple(given)), replace(few, arguments=given), y, values, handler)
            sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
            seen.update({name: type(base_distribution(site["fn"])) for name, site in sites.items()})
            told = {name: as_arrays(site["fn"], fixed[name]) for name, site in sites.items()}
            made = {name: site["value"] for name, site in trace.items() if site["type"] == "deterministic"}
            return {
                "densities": {name: log_prob(site) for name, site in sites.items()}, "told": told, "made": made,
                "words": (handler.theta, handler.beta, handler.label, handler.coefficients),
            }  # fmt: skip

        families = {name: type(base_distribution(site["fn"])) for name, site in self.sites.items()}

        def told(names: Sequence[str]) -> str | None:
            seen.clear()
            afresh = jax.make_jaxpr(
                lambda *arguments: look(*arguments), return_shape=True
            )  # or JAX remembers, and looks not
            try:
                found, out = afresh({name: known[name] for name in names}, few, y, values)
            except Exception:
                return None
            return digest(found, out) if seen == families else None

        if (computation := told(candidates)) is None:
            candidates = [name for name in candidates if told([name])]
            computation = told(candidates)
        return (tuple(candidates), computation) if computation else ((), told([]))

    def _axes(
        self, shapes: dict[str, tuple], document: dict[str, int | None], parents: dict[str, frozenset[str]]
    ) -> dict[str, Dims]:
        """Names of the axes of every latent site."""
        frames: dict[str, list] = {}

        def look(values: dict[str, jax.Array]) -> dict[str, Any]:
            trace, handler = self._traced(values)
            sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
            frames.update({name: site["cond_indep_stack"] for name, site in sites.items()})
            chances = {
                name: [value for value, _ in parameters(site["fn"]).values()]
                for name, site in sites.items() if isinstance(base_distribution(site["fn"]), CATEGORICAL)
            }  # fmt: skip
            out: dict[str, Any] = {
                "densities": {name: log_prob(site) for name, site in sites.items()},
                "chances": chances,
            }
            if handler.calls:
                out |= {THETA: handler.theta, BETA: handler.beta, "etas": handler.coefficients}
            bags = [fn for site in sites.values() if isinstance(fn := base_distribution(site["fn"]), BagOfWords)]
            return out | {BAG: [(fn.beta, fn.z) for fn in bags]}

        drawn = parents.get(BAG, frozenset())  # the topics of whole documents, where they are no observed class
        supports = {site: self.sites[site]["fn"] for site in drawn if self.sites[site]["fn"].has_enumerate_support}
        counted = {site: fn.enumerate_support(expand=False).size for site, fn in supports.items()}
        joined, given, found, along = joined_axes(look, self._values(shapes), counted)
        names: dict[int, str] = {}

        def name(axes: Sequence[int], *called: str) -> None:
            for axis, what in zip(axes, called, strict=False):
                names.setdefault(joined.find(axis), what)

        plates: dict[str, int] = {}
        for site in self.latent:
            event_dim = self.sites[site]["fn"].event_dim
            for frame in frames[site]:
                place = len(given[site]) - event_dim + frame.dim
                if 0 <= place < len(given[site]):
                    joined.join(plates.setdefault(frame.name, given[site][place]), given[site][place])
        if THETA in found:
            name(found[THETA], DOCUMENT, TOPIC)
            name(given[ZBAR], DOCUMENT, TOPIC)
            for eta in found["etas"]:
                name(eta[:1], TOPIC)
            name(found[BETA], *((OF_LABEL,) if len(found[BETA]) == 3 else ()), TOPIC, TERM)
        name(list(along.values()), *(TOPIC for _ in along))
        for beta, z in found[BAG]:
            name(z, DOCUMENT)
            name(beta, TOPIC if drawn else OF_LABEL, TERM)
        for site, chances in found["chances"].items():
            for axes in chances:
                if site in drawn:
                    name(axes[-1:], TOPIC)
                elif site in parents.get(LABEL, ()) or self._is_observed_class(site, parents):
                    name(axes[-1:], OF_LABEL)
        return {
            site: tuple(
                DOCUMENT if i - len(shape) == document[site] else _other(names.get(joined.find(axis)))
                for i, axis in enumerate(given[site])
            )
            for site, shape in shapes.items()
        }

    def _is_observed_class(self, site: str, parents: dict[str, frozenset[str]]) -> bool:
        """Whether a site is observed, and words are drawn given it rather than it given them."""
        above = parents.get(LABEL, parents.get(BAG))  # what is drawn of the label of words; nothing if it is observed
        return self.sites[site]["is_observed"] and above == frozenset() and ZBAR not in parents[site]

    def _role(self, name: str, axes: Dims, parents: dict[str, frozenset[str]]) -> str:
        site = self.sites[name]
        if isinstance(base_distribution(site["fn"]), BagOfWords):
            return "words"
        if name == self.theta:
            return "proportions"
        if name == self.beta or name in self.bagged:
            return "topics"
        words = {other for other in self.sites if isinstance(base_distribution(self.sites[other]["fn"]), BagOfWords)}
        drives = words | {THETA, BETA, LABEL, SWITCH, BAG}
        if axes == (DOCUMENT,) and site["fn"].support.is_discrete and any(name in parents.get(d, ()) for d in drives):
            return "class"
        after = {other for other, read in parents.items() if ZBAR in read}
        while more := {other for other, read in parents.items() if read & after} - after:
            after |= more
        read_by = {other for other, read in parents.items() if name in read and other in self.sites and other != name}
        if site["is_observed"] or (name in after and not read_by):
            return "response"
        observed = {other for other in read_by if self.sites[other]["is_observed"]} - words
        shares = site["fn"].support is constraints.simplex
        if TOPIC in axes and not {TERM, DOCUMENT} & set(axes) and not shares and observed:
            return "coefficients"
        return "document" if DOCUMENT in axes else "global"


def _other(name: str | None) -> str | None:
    """An axis that is documents somewhere is documents of a site only where it grows with them."""
    return None if name == DOCUMENT else name


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray | jax.Array) and value.dtype.kind == "f")


def _changed_axis(small: tuple[int, ...], large: tuple[int, ...]) -> int | None:
    """The axis, counted from the end, along which two shapes differ."""
    changed = [axis for axis in range(-len(large), 0) if small[axis] != large[axis]]
    return changed[0] if changed else None
