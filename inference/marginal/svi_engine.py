"""Stochastic variational inference on a story with its topics summed out, by minibatches of documents.

A minibatch is a slice of the corpus. The story runs on the slice as on a small corpus; what belongs to documents, in the
story's density and in the guide's, is multiplied by D/batch, so that the bound of a random slice is on average the bound
of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.util import log_density
from numpyro.optim import Adam

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents
from topiczoo.corpora.streams import Stream

from ..lasting.checkpoint import Checkpoint, Nowhere, opened
from ..mcmc.weighing import with_weight
from ..posterior.posterior import Posterior
from ..programs.compiling import jitted
from ..programs.keeping import form_of, keep
from ..programs.progress import tqdm
from ..story.bound import BoundGraph
from ..story.reading import read
from ..story.tracing import TRACING, circumstances, traced
from ..story.validation import check_counts, check_numbers, check_seed, refuse_improper
from ..streams.minibatches import Minibatches
from .batches import Batches, StreamBatches
from .guides import Guide, PathwiseDirichlet
from .model import Marginal

NODES = 3
BUDGET = (
    256 * 2**20
)  # bytes: of a site whose draws would take more the mean is kept, and fewer draws if not of documents
LOSSES = "losses"  # their name in a checkpoint
LOOK = 50  # steps between two looks at the loss


def svi(
    story: str | Callable, corpus: Corpus | Stream, y: Any = None, *, seed: int = 0, num_steps: int = 2000,
    batch_size: int | None = None, guide: str = "mean_field", learning_rate: float = 0.05, num_draws: int = 500,
    response_weight: float = 1.0, checkpoint: str | Path | Checkpoint | None = None, progress_bar: bool = True,
    **arguments: Any,
) -> Posterior:  # fmt: skip
    """Fit a variational approximation of a story's posterior, and draw from it.

    Parameters
    ----------
    story
        A generative story, ``story(corpus, y=None, *, ...)``, or the name of one of the zoo.
    corpus, y
        Documents, and their responses where the story has them; NaN marks an unlabelled document. Or
        ``corpora.stream(...)``, which has batches and responses of its own, with an amortised guide (docs/streams.md).
    num_steps, batch_size
        Steps of the optimiser, and documents in each; all of them by default.
    guide
        ``"mean_field"``: parameters for every document. ``"amortised"``: theta's from a network that reads the document.
    learning_rate
        Of Adam, at its highest: it rises for a twentieth of the steps and then falls along a cosine.
    num_draws
        Draws from the fitted guide that make up the posterior.
    response_weight
        The power of the response's likelihood. 1 approximates the posterior; above 1 topics serve predictions. A tenth of
        the documents, 200 at the most, are held out: the approximation of scales such as sigma follows from them alone, and
        predictions are calibrated by them (docs/weights.md).
    checkpoint
        A folder for checkpoints, about one a minute: ``inference.resume(folder)``, or the same call again, goes on from the
        last one, and ends with what a run without a break gives, to the last bit (docs/lasting.md).
    arguments
        Keyword arguments of the story.

    Notes
    -----
    ``fit.info["losses"]`` are the estimates of the negative bound, one a step. With a response the bound averages its
    log-density over three sigma points of the predictor: exact for a normal response.
    """
    check_seed(seed)
    check_counts(num_steps=num_steps, num_draws=num_draws)
    check_numbers(learning_rate=learning_rate)
    source = None
    if isinstance(corpus, Stream):
        source = _streamed(corpus, y, batch_size, guide, response_weight)
        graph, batch_size = source.read(story, arguments), source.size
    else:
        if batch_size is not None:
            check_counts(batch_size=batch_size)
            if batch_size > len(corpus):
                raise ValueError(f"batch_size is {batch_size}, more than the {len(corpus)} documents; give fewer.")
        graph = read(story, corpus, y, arguments)
    refuse_improper(graph, "svi")
    weighed = with_weight(graph, response_weight)
    fitted = _Fitting(weighed, guide, batch_size or len(graph.corpus), learning_rate, num_steps, seed, source)
    losses, interrupted = fitted.run(num_steps, progress_bar, opened(checkpoint, graph))
    draws, means, snapshots, index = fitted.draw(num_draws)
    info = {
        "seed": seed, "guide": guide, "batch_size": batch_size, "num_steps": len(losses),
        "learning_rate": learning_rate, "target": fitted.model.target, "losses": losses, "interrupted": interrupted,
        "response_weight": response_weight, "held_out": list(weighed.held_out), "as_means": sorted(means), **circumstances(),
    }  # fmt: skip
    if source is not None:
        info["num_documents"] = source.num_documents
    return Posterior.of(
        graph, draws, engine="svi", info=info, means=means, snapshots=snapshots, snapshot_index=index,
        importance_ratios=fitted.importance_ratios if weighed is graph and source is None else None,
    )  # fmt: skip


def _streamed(stream: Stream, y: Any, batch_size: int | None, guide: str, response_weight: float) -> Minibatches:
    """The batches of a stream, where the guide's parameters are no more with more documents."""
    if guide == "mean_field":
        raise ValueError(
            "guide is 'mean_field', which has parameters for every document; a stream takes guide='amortised'."
        )
    if response_weight != 1:
        raise ValueError(f"response_weight is {response_weight!r}, and a stream holds no documents out; leave it out.")
    return Minibatches(stream, y, batch_size, stream.seed)


def learning_rates(peak: float, num_steps: int) -> Callable[[Any], Any]:
    """A rise over a twentieth of the steps, then a cosine down to a hundredth of the peak."""
    rise = max(1, num_steps // 20)

    def rate(step: Any) -> Any:
        done = jnp.clip((step - rise) / max(1, num_steps - rise), 0.0, 1.0)
        return peak * jnp.minimum((step + 1) / rise, 0.01 + 0.99 * 0.5 * (1 + jnp.cos(jnp.pi * done)))

    return rate


class _Programs:
    """The compiled steps of a model and a guide, which serve other documents, seeds and numbers of the story."""

    def __init__(self, model: Marginal, guide: Guide, scale: float, learning_rate: float, num_steps: int) -> None:
        # a single draw, with the divergence of two Dirichlets or two normals in closed form
        self.svi = svi = SVI(
            lambda initial, documents, y, rows: model(documents, y, scale),
            lambda initial, documents, y, rows: guide.starting_at(initial)(documents, y, rows, scale),
            Adam(learning_rates(learning_rate, num_steps)),
            TraceMeanField_ELBO(),
        )

        def init(initial: dict, key: jax.Array, *batch: Any) -> Any:
            return svi.init(key, initial, *batch)

        def network(known: dict, documents: Documents, parameters: dict) -> Any:
            with handlers.substitute(data=parameters):
                return guide.starting_at(known).site(guide.amortised or "", documents, None).concentration

        self.init = jitted(traced(init), once=True)
        self.network = jitted(traced(network))
        self.update = jitted(traced(svi.update), donate_argnums=0)


class _Fitting:
    """The model, the guide and the optimiser's state."""

    def __init__(
        self, graph: BoundGraph, guide: str, batch_size: int, learning_rate: float, num_steps: int, seed: int,
        source: Minibatches | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.seed = graph, seed
        self.model = Marginal(graph, nodes=NODES, average="log")
        number = len(graph.corpus) if source is None else source.num_documents
        self.guide = Guide(graph, guide, seed, number / len(graph.corpus))
        size = min(batch_size, len(graph.corpus))
        self.batches = Batches(graph.corpus, graph.y, size, graph.held_out, graph.story.given)
        self.source = self.batches if source is None else StreamBatches(graph, source)
        self.scale = number / batch_size
        if self.scale > 1:
            self._refuse_batches()
        fixed = self.model.bare(), self.guide.bare(), self.scale, learning_rate, num_steps
        form = form_of(self.model, guide, self.guide.supports, *fixed[2:])
        self.programs = _Programs(*fixed) if form is None else keep((_Programs, form), lambda: _Programs(*fixed))
        self.svi = self.programs.svi

    def _refuse_batches(self) -> None:
        for name, site in self.graph.latent.items():
            if site.document_axis is not None and self.graph.density_axis[name] is None:
                raise ValueError(
                    f"The site {name!r} of the story {self.graph.story.name!r} has one density for all documents, so a "
                    "slice of them has none; leave batch_size out."
                )
            per_document = site.document_axis is not None and name in self.guide.sites and name != self.guide.amortised
            if per_document and isinstance(self.source, StreamBatches):
                raise ValueError(
                    f"The site {name!r} of the story {self.graph.story.name!r} belongs to documents, and the guide would "
                    "have parameters for each of a stream; fit a corpus in memory."
                )

    def run(self, num_steps: int, progress_bar: bool, lasting: Nowhere) -> tuple[np.ndarray, bool]:
        """Take the steps; returns the losses, and whether Ctrl-C ended them early."""
        kept = lasting.kept
        losses: list[Any] = [] if kept is None else list(kept.arrays[LOSSES])
        batches = self.source.random(np.random.default_rng(self.seed), len(losses))
        batch = next(batches)
        self.state = self.programs.init(self.guide.initial, jax.random.key(self.seed), *batch)
        if kept is not None:
            self.state = kept.state(self.state)
        known = self.guide.known

        def told() -> tuple:
            losses[:] = jax.device_get(losses)
            return self.state, {}, (), {LOSSES: np.array(losses)}

        with tqdm(total=num_steps, disable=not progress_bar, unit="step") as bar, lasting.watching():
            try:
                for step in range(len(losses), num_steps):
                    self.state, loss = self.programs.update(self.state, known, *batch)
                    losses.append(loss)
                    if (step + 1) % LOOK == 0 or step + 1 == num_steps:
                        self._refuse_nan(losses)
                        bar.set_postfix_str(f"loss {float(loss):.6g}", refresh=False)
                        bar.update(step + 1 - bar.n)
                    lasting.look(told, last=step + 1 == num_steps)
                    batch = next(batches)
            except KeyboardInterrupt:
                if not losses:
                    raise
        return np.array(losses), len(losses) < num_steps

    @staticmethod
    def _refuse_nan(losses: list[Any]) -> None:
        recent = np.array(losses[-LOOK:])
        if not np.isfinite(recent).all():
            step = len(losses) - len(recent) + int(np.argmin(np.isfinite(recent)))
            raise FloatingPointError(
                f"The loss is {losses[step]} at step {step}; lower learning_rate, or check the scale of y and the priors."
            )

    def draw(self, num_draws: int) -> tuple[dict, dict, dict, np.ndarray]:
        """Draws of every site that fit the budget; of the others the means, and fewer draws where not of documents."""
        key = jax.random.fold_in(jax.random.key(self.seed), 1)
        parameters = self.svi.get_params(self.state)
        guides = {name: self._whole(name, parameters) for name in self.guide.sites}
        size = {name: 4 * int(np.prod(q.shape())) for name, q in guides.items()}
        large = {name for name in guides if size[name] * num_draws > BUDGET}
        unstored = {name for name in large if self.guide.sites[name].document_axis is not None}
        fewer = min([num_draws, *(max(10, BUDGET // size[name]) for name in large - unstored)])
        draws: dict[str, np.ndarray] = {}
        means: dict[str, np.ndarray] = {}
        snapshots: dict[str, np.ndarray] = {}
        for place, (name, q) in enumerate(guides.items()):
            keys = jax.random.split(jax.random.fold_in(key, place), num_draws)
            if name in large:
                means[name] = np.asarray(_mean(q, keys))[None]
            if name not in unstored:
                kept = _draws(q, keys[:fewer] if name in large else keys)
                (snapshots if name in large else draws)[name] = np.asarray(kept)[None]
        return draws, means, snapshots, np.arange(fewer if snapshots else 0)

    def importance_ratios(
        self, num_draws: int = 200, num_thetas: int = 3, most_documents: int = 200
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """log p/q of draws from the guide: of the sites that are not of documents [draws], and of documents one by one.

        Sites of documents would swamp the ratio of the others. In that they are therefore averaged, over the same few draws
        for every draw of the others:  log r(g) = mean_m log p(g, theta_m, data) - log q(g).
        A document's ratio is p(theta_d, w_d, y_d | g) / q(theta_d) at one g, [draws, documents] for some documents.
        """
        parameters = self.svi.get_params(self.state)
        q = {name: self._whole(name, parameters) for name in self.guide.sites}
        local = {name for name, site in self.guide.sites.items() if site.document_axis is not None}
        key, theta_key = jax.random.split(jax.random.fold_in(jax.random.key(self.seed), 2))
        everything = self.batches.take(np.arange(len(self.graph.corpus)))[:2]

        @jitted
        @traced
        def of_globals(data: tuple, q: dict) -> jax.Array:
            thetas = [
                {
                    name: q[name].sample(jax.random.fold_in(jax.random.fold_in(theta_key, m), i))
                    for i, name in _numbered(local)
                }
                for m in range(num_thetas)
            ]

            def ratio(key: jax.Array) -> jax.Array:
                drawn = {name: q[name].sample(jax.random.fold_in(key, i)) for i, name in _numbered(set(q) - local)}
                log_q = sum(q[name].log_prob(value).sum() for name, value in drawn.items())
                log_p = [log_density(self.model, data, {}, {**drawn, **theta})[0] for theta in thetas]
                return sum(log_p) / len(log_p) - log_q

            return jax.lax.map(ratio, jax.random.split(key, num_draws))

        of_all = np.asarray(of_globals(everything, q))
        if not local:
            return of_all, None
        rows = np.sort(np.random.default_rng(self.seed).permutation(len(self.graph.corpus))[:most_documents])
        documents_, y, places = self.batches.take(rows)

        @jitted
        @traced
        def of_documents(data: tuple[Documents, Any], parameters: dict) -> jax.Array:
            with handlers.substitute(data=parameters):
                of_rows = {name: self.guide.site(name, data[0], places) for name in local}
            at = {name: q[name].sample(jax.random.fold_in(key, i)) for i, name in _numbered(set(q) - local)}

            def ratio(key: jax.Array) -> jax.Array:
                drawn = {name: of_rows[name].sample(jax.random.fold_in(key, i)) for i, name in _numbered(local)}
                total = self.model.document_densities(*data, {**at, **drawn})
                for name, value in drawn.items():
                    terms = of_rows[name].log_prob(value)
                    total = total - terms.reshape(len(rows), -1).sum(-1)
                return total

            return jax.lax.map(ratio, jax.random.split(theta_key, num_draws))

        return of_all, np.asarray(of_documents((documents_, y), parameters))

    def _whole(self, name: str, parameters: dict) -> Any:
        """q of a site for the whole corpus."""
        if name == self.guide.amortised:
            known = self.guide.known
            parts = [self.programs.network(known, part, parameters) for part, _, _ in self.batches.in_order()]
            return PathwiseDirichlet(jnp.concatenate(parts))
        with TRACING, handlers.substitute(data=parameters):
            return self.guide.site(name, None, None)


def _numbered(names: set[str]) -> list[tuple[int, str]]:
    """Names with a number each, for keys of their own."""
    return list(enumerate(sorted(names)))


@jitted
def _draws(q: Any, keys: jax.Array) -> jax.Array:
    return jax.lax.map(q.sample, keys)


@jitted
def _mean(q: Any, keys: jax.Array) -> jax.Array:
    total, _ = jax.lax.scan(lambda total, key: (total + q.sample(key), None), jnp.zeros(q.shape()), keys)
    return total / len(keys)
