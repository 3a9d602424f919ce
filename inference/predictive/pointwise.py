"""Pointwise log-likelihood of the response: log p(y_d | w_d, the sites of the whole corpus) at posterior draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax, logsumexp

from topiczoo.corpora import Corpus

from ..posterior.posterior import Posterior
from ..programs.compiling import jitted
from ..programs.progress import tqdm
from ..story.response import Response, in_order
from ..story.support import check_support, observed
from ..story.tracing import Values, ZbarHandler, base_distribution, log_prob, run
from ..story.validation import check_counts, check_draws, check_seed
from .class_posterior import ClassPosterior, label_above
from .fold_in import FoldIn
from .predicting import LEAST_RESPONSES, as_prediction, predicted
from .prediction import Prediction
from .responding import respond

OF_A_CLASS = 8  # draws of topics over which a response's density is averaged, for each class above the words


class Pointwise(NamedTuple):
    """For each response: log p(y_d | w_d, draw), and y as the story's site sees it; NaN where unlabelled."""

    log_likelihood: dict[str, np.ndarray]  # each [chain, draw, documents]
    observed: dict[str, np.ndarray]  # each [documents, ...]
    predictions: dict[str, Prediction]  # by the model's own numbers, where they were asked for


def log_likelihood(fit: Posterior, corpus: Corpus, y: Any, **settings: Any) -> Any:
    """log p(y_d | w_d, phi_s) as an array [chain, draw, document], NaN for unlabelled documents.

    A dict of arrays where the story has several responses. The settings are those of :func:`pointwise`.
    """
    found = pointwise(fit, corpus, y, **settings).log_likelihood
    return found if len(found) > 1 else next(iter(found.values()))


def pointwise(
    fit: Posterior,
    corpus: Corpus,
    y: Any,
    *,
    inner: int | None = 20,
    most_draws: int = 100,
    num_burn: int = 2,
    seed: int = 0,
    predictions: bool = False,
    progress_bar: bool = False,
) -> Pointwise:
    """log p(y_d | w_d, phi_s) for each posterior draw phi_s of the sites that are not of documents.

        p(y_d | w_d, phi)  =  sum over z of  p(z | w_d, phi)  p(y_d | zbar, phi)

    is the mean of the response's density over ``inner`` sweeps of the topics given the words alone, never the response;
    other sites of a document are drawn from their prior. Given phi, documents are independent, as leave-one-out needs it.
    A margin has the density of its law of new classes, a class above the words the probability that Bayes' rule gives.

    There are ``most_draws`` draws a chain at the most; :func:`draw_index` says which. Where only the mean over draws is
    wanted, ``inner=None`` takes as few sweeps as make 200 with all draws. With ``predictions`` the responses are predicted
    from the same topics.
    """
    check_seed(seed)
    check_counts(**({} if inner is None else {"inner": inner}))
    check_draws(most_draws, num_burn)
    if y is None:
        raise ValueError("y is missing; give the documents' responses, NaN for unlabelled ones.")
    y = in_order(corpus, y)
    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    settings["progress_bar"] = progress_bar
    fold = FoldIn(fit, corpus, fit.response.like_this(corpus, y))
    graph = fold.graph
    above = label_above(graph, fit.sites)  # a class that the fit has never seen
    names = [] if above else [name for name in fold.responses if name in graph.observed]
    blind = FoldIn(fit, corpus) if predictions or not names else None
    if not names:
        assert blind is not None
        if (above := label_above(blind.graph, fit.sites)) is not None:
            classes = ClassPosterior(blind, above)
            if classes.answers == [above]:
                found = _from_above(classes, fit.response.encode(y), most_draws, progress_bar)
                return found._replace(predictions=predicted(blind, **settings) if predictions else {})
            if classes.answers:
                found = _generated(classes, fold, most_draws, progress_bar)
                return found._replace(predictions=predicted(blind, **settings) if predictions else {})
        raise ValueError(
            f"The story {fit.story.name!r} has no response that follows from topics; there is no p(y_d | w_d)."
        )
    axes = {name: axis for name in names if (axis := graph.density_axis[name]) is not None}
    if len(axes) < len(names):
        raise ValueError(
            f"The response {next(iter(set(names) - set(axes)))!r} of the story {fit.story.name!r} is one for the whole "
            "corpus; there is no p(y_d | w_d)."
        )
    seen = observed(graph)
    check_support(graph, seen)
    values_of = {name: seen[name].value.astype(float) for name in names}
    enough = -(-LEAST_RESPONSES // (len(fold.chains) * len(draw_index(fit, most_draws))))
    given = inner or enough, tuple(axes.items()), tuple(blind.responses) if blind else (), enough
    parts = list(fold.run(_densities, *given, **settings))
    logs = {}
    for name, values in values_of.items():
        stacked = np.stack([part[name] for part, _ in parts]).astype(float)
        unlabelled = np.isnan(values.reshape(len(corpus), -1)).all(1)
        logs[name] = np.where(unlabelled, np.nan, stacked).reshape(len(fold.chains), -1, len(corpus))
    told = {}
    if blind is not None:
        told = {name: as_prediction(name, corpus, [part[name] for _, part in parts], blind) for name in parts[0][1]}
    return Pointwise(logs, values_of, told)


def _densities(
    fold: FoldIn, burn: int, inner: int, axes: tuple[tuple[str, int], ...], names: tuple[str, ...], repeats: int,
    data: tuple, key: jax.Array, centre: Any, values: Values,
) -> tuple[dict[str, jax.Array], dict[str, dict]]:  # fmt: skip
    """At one posterior draw: log p(y_d | w_d) of the responses that have ``axes``, and the responses of some ``names``."""
    corpus, y = data
    graph = fold.graph
    start_key, last_key, key = jax.random.split(key, 3)

    def topics(z: Any) -> tuple[jax.Array, dict]:
        theta = fold.theta(corpus, z, values)
        return fold.zbar(corpus, z, theta), fold.given(z, theta, values)

    def density(key: jax.Array, z: Any) -> dict[str, jax.Array]:
        zbar, given = topics(z)
        trace, found = run(graph.story, corpus, y, given, ZbarHandler(zbar), key=key, prior=True), {}
        for name, axis in axes:
            terms = log_prob(trace[name]) - getattr(base_distribution(trace[name]["fn"]), "log_normaliser", 0.0)
            terms = jnp.moveaxis(terms, axis, -1)
            found[name] = terms.sum(tuple(range(terms.ndim - 1)))
        return found

    def one_more(i: jax.Array, carry: tuple) -> tuple:
        z, totals = carry
        sweep_key, response_key = jax.random.split(jax.random.fold_in(key, i))
        z = fold.sweep(corpus, sweep_key, z, values)
        return z, jax.tree.map(jnp.logaddexp, totals, density(response_key, z))

    z = fold.topics(corpus, start_key, centre, values, burn)
    totals = density(key, z)
    if inner > 1:  # or nothing would be compiled for no sweep
        z, totals = jax.lax.fori_loop(1, inner, one_more, (z, totals))
    logs = jax.tree.map(lambda total: total - jnp.log(inner), totals)
    if not names:
        return logs, {}
    zbar, given = topics(z)
    return logs, respond(graph, names, repeats, last_key, corpus, zbar, given)


def _generated(classes: ClassPosterior, fold: FoldIn, most_draws: int, progress_bar: bool) -> Pointwise:
    """log p(y_d | w_d, phi_s) = log sum_c p(c | w_d, phi_s) p(y_d | c, phi_s) of what a latent class generates."""
    graph, names = fold.graph, classes.answers
    seen = observed(graph)
    check_support(graph, seen)

    @jitted
    def given(data: tuple, values: Values) -> dict[str, jax.Array]:
        corpus, y = data

        def one(label: jax.Array) -> dict[str, jax.Array]:
            tried = {**values, classes.site: jnp.full(corpus.num_documents, label)}
            if not classes.reads_topics:
                answer = ZbarHandler(lambda theta: theta)
                return {name: graph.document_terms([name], corpus, y, tried, answer) for name in names}

            def at_topics(key: jax.Array) -> dict[str, jax.Array]:
                zbar, tried = classes.topics(key, corpus, values, label)
                return {n: graph.document_terms([n], corpus, y, tried, ZbarHandler(zbar)) for n in names}

            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), label), OF_A_CLASS)
            found = jax.lax.map(at_topics, keys)
            return {name: jax.nn.logsumexp(logs, axis=0) - jnp.log(OF_A_CLASS) for name, logs in found.items()}

        return jax.lax.map(one, jnp.asarray(classes.classes))  # each [classes, documents]

    points = tqdm(list(fold.points(most_draws)), disable=not progress_bar, desc="classes", unit="draw")
    logs: dict[str, list] = {name: [] for name in names}
    for values in points:
        shares, terms = log_softmax(classes.log_joint(values)[0], axis=1), given(fold.data, values)
        for name in names:
            logs[name].append(logsumexp(shares.T + np.asarray(terms[name], float), axis=0))
    values_of = {name: seen[name].value.astype(float) for name in names}
    shape = len(fold.chains), -1, len(graph.corpus)
    unlabelled = {name: np.isnan(value.reshape(len(value), -1)).all(1) for name, value in values_of.items()}
    return Pointwise(
        {name: np.where(unlabelled[name], np.nan, np.stack(part)).reshape(shape) for name, part in logs.items()},
        values_of,
        {},
    )


def _from_above(classes: ClassPosterior, y: Any, most_draws: int, progress_bar: bool) -> Pointwise:
    """log p(y_d | w_d, phi_s) of a class above the words."""
    fold, site = classes.fold, classes.site
    corpus = fold.graph.corpus
    codes = np.asarray(Response.of(corpus, y).y, float)
    labelled = ~np.isnan(codes)
    places = np.where(labelled, codes, 0).astype(int)
    if not np.isin(codes[labelled], classes.classes).all():
        raise ValueError(
            f"y has values other than the classes 0 to {classes.classes[-1]} of the site {site!r}; recode y."
        )
    points = tqdm(list(fold.points(most_draws)), disable=not progress_bar, desc="classes", unit="draw")
    joints = [classes.log_joint(values)[0] for values in points]
    logs = np.stack([log_softmax(joint, axis=1)[np.arange(len(places)), places] for joint in joints])
    logs = np.where(labelled, logs, np.nan).reshape(len(fold.chains), -1, len(corpus))
    return Pointwise({site: logs}, {site: codes}, {})


def draw_index(fit: Posterior, most_draws: int) -> np.ndarray:
    """Which draws of a chain ``fit.global_draws(most_draws)`` are."""
    stored = next(iter(fit.draws.values())).shape[1] if fit.draws else len(fit.snapshot_index)
    index = fit.snapshot_index if fit.snapshots else np.arange(stored)
    if len(index) > most_draws:
        index = index[np.linspace(0, len(index) - 1, most_draws).astype(int)]
    return index
