"""The story with its topics summed out, against sums over every assignment of topics to words."""

import functools
import inspect
import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

from topiczoo import corpora, models
from topiczoo.corpora.layouts import documents
from topiczoo.inference.marginal.model import Marginal
from topiczoo.inference.steps.quadrature import sigma_points
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import log_prob, run
from topiczoo.models import draw_words

TINY = corpora.Corpus.from_counts([[2, 1, 0], [0, 1, 1], [1, 0, 1]])  # 7 tokens, one of them twice
Y = np.array([0.5, -1.0, 1.5])


def topics_and_proportions(corpus, num_topics):
    """What the edited stories below share with slda."""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(num_topics)))
    return theta, beta


def student(corpus, y=None, *, num_topics=2):
    """slda, its normal response replaced by a Student-t."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.StudentT(4, zbar @ eta, sigma), obs=y)


def two_predictors(corpus, y=None, *, num_topics=2):
    """The mean and the log-scale of the response are both linear in zbar."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    zeta = numpyro.sample("zeta", dist.Normal(0, 0.5).expand([num_topics]).to_event(1))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, jnp.exp(zbar @ zeta)), obs=y)


def softmax(corpus, y=None, *, num_topics=2, num_classes=3):
    """A class label, logits linear in zbar."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics, num_classes]).to_event(2))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Categorical(logits=zbar @ eta), obs=y)


def latent_below(corpus, y=None, *, num_topics=2):
    """Each document has a latent score around eta . zbar, and y is a noisy sight of the score."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.deterministic("expected", zbar @ eta)
        score = numpyro.sample("score", dist.Normal(zbar @ eta, 0.5))
        numpyro.deterministic("doubled", 2 * score)
        numpyro.sample("y", dist.Normal(score, 0.5), obs=y)


def squared_zbar(corpus, y=None, *, num_topics=2):
    """A response that is not linear in zbar."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal((zbar**2).sum(-1), 1.0), obs=y)


def centred(corpus, y=None, *, num_topics=2):
    """The predictor is centred over documents: one document's topics enter another's mean."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    predictor = draw_words(corpus, theta, beta) @ eta
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(predictor - predictor.mean(), 1.0), obs=y)


@functools.cache
def reading_of(story):
    """The story read on the tiny corpus, with flat priors where it has arguments for them."""
    known = inspect.signature(story).parameters
    arguments = {name: 1.0 for name in ("alpha", "gamma") if name in known}
    y = None if "y" not in known else np.array([0.0, 2.0, 1.0]) if story is softmax else Y
    return read(story, TINY, y, {"num_topics": 2, **arguments})


def data_of(corpus, y, **layouts):
    return documents(corpus, pairs=True, **layouts), None if y is None else jnp.asarray(y)


def some_values(graph, corpus, draws=2, seed=0):
    """Random values of every continuous site, for all documents; leading axis of draws."""
    rng, values = np.random.default_rng(seed), {}
    for name, site in graph.latent.items():
        shape = list(site.shape)
        if site.document_axis is not None:
            shape[site.document_axis] = len(corpus)
        if isinstance(site.prior, dist.Dirichlet):
            values[name] = rng.dirichlet(np.ones(shape[-1]), (draws, *shape[:-1]))
        elif isinstance(site.prior, dist.HalfNormal):
            values[name] = rng.uniform(0.3, 1.5, (draws, *shape))
        elif not site.discrete:
            values[name] = rng.normal(size=(draws, *shape))
    return {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}


def marginal_density(graph, corpus, y, values, *, average="density", nodes=9):
    """The log-density of the model at each draw of values."""
    model, data = Marginal(graph, nodes=nodes, average=average), data_of(corpus, y)
    return jax.jit(jax.vmap(lambda values: log_density(model, data, {}, values)[0]))(values)


def summed_density(graph, corpus, y, values):
    """The explicit story's log-density, summed over all topics of all words, at each draw of values."""
    data = data_of(corpus, y, tokens=True)
    places = corpus.num_tokens if graph.has_words else len(corpus)
    every_z = jnp.array(list(itertools.product(range(values["beta"].shape[-2]), repeat=places)))

    def joint(values, z):
        trace = run(graph.story, *data, {**values, "z": z})
        return sum(log_prob(site).sum() for site in trace.values() if site["type"] == "sample")

    @jax.jit
    @jax.vmap
    def summed(values):
        return jax.nn.logsumexp(jax.vmap(lambda z: joint(values, z))(every_z))

    return summed(values)


def test_lda_is_exact():
    graph = reading_of(models.lda)
    values = some_values(graph, TINY)
    exact = summed_density(graph, TINY, None, values)
    np.testing.assert_allclose(marginal_density(graph, TINY, None, values), exact, rtol=1e-5)


def test_mixture_is_exact():
    """Trying all topics of each document gives the sum over all z."""
    graph = reading_of(models.mixture)
    values = some_values(graph, TINY)
    exact = summed_density(graph, TINY, None, values)
    np.testing.assert_allclose(marginal_density(graph, TINY, None, values), exact, rtol=1e-5)


def test_averaged_logarithm_is_equation_4_of_slda():
    """E[log N(y; eta . zbar, s^2)]: in log N the square of eta . zbar becomes eta' E[zbar zbar'] eta."""
    graph = reading_of(models.slda)
    values = some_values(graph, TINY, draws=1)
    theta, beta, eta = (np.asarray(values[name][0], float) for name in ("theta", "beta", "eta"))
    sigma = float(values["sigma"][0])
    expected = 0.0
    for d, (row, y) in enumerate(zip(TINY.counts.toarray(), Y, strict=True)):
        phi = np.array([theta[d] * beta[:, v] for v in np.repeat(np.arange(3), row)])
        phi /= phi.sum(1, keepdims=True)
        # E[zbar zbar'] = (sum_n sum_{m != n} phi_n phi_m' + sum_n diag(phi_n)) / N^2
        outer = np.outer(phi.sum(0), phi.sum(0)) - phi.T @ phi + np.diag(phi.sum(0))
        second, mean = eta @ outer @ eta / len(phi) ** 2, eta @ phi.mean(0)
        expected += -0.5 * np.log(2 * np.pi * sigma**2) - (y**2 - 2 * y * mean + second) / (2 * sigma**2)
    words_only = {name: values[name] for name in ("theta", "beta")}
    without = marginal_density(reading_of(models.lda), TINY, None, words_only)
    priors = dist.Normal(0, 2).log_prob(eta).sum() + dist.HalfNormal(1).log_prob(sigma)
    density = marginal_density(graph, TINY, Y, values, nodes=3, average="log")
    np.testing.assert_allclose((density - without - priors)[0], expected, rtol=2e-5)


SLOW = [pytest.param(story, marks=pytest.mark.slow) for story in (student, softmax)]


@pytest.mark.parametrize("story", [models.slda, two_predictors, *SLOW])
def test_averages_against_every_assignment(story):
    """Jensen's average lies below the exact marginal; the averaged density is the closer of the two."""
    graph = reading_of(story)
    values = some_values(graph, TINY, draws=200)
    exact = summed_density(graph, TINY, graph.y, values)
    jensen = marginal_density(graph, TINY, graph.y, values, average="log") - exact
    density = marginal_density(graph, TINY, graph.y, values) - exact
    # a bound lies below; other than normal responses have a quadrature of one
    assert np.max(jensen) < (1e-3 if story is models.slda else 0.1)
    assert np.median(np.abs(density)) < 0.25 * np.median(np.abs(jensen))


@pytest.mark.slow
def test_error_shrinks_as_documents_grow():
    graph, errors = reading_of(student), []
    for length in (2, 8):
        corpus, y = corpora.Corpus.from_counts([[length // 2, length // 2]]), np.array([1.0])
        values = {
            "beta": jnp.array([[[0.7, 0.3], [0.4, 0.6]]]), "theta": jnp.array([[[0.5, 0.5]]]),
            "eta": jnp.array([[-2.0, 2.0]]), "sigma": jnp.array([0.5]),
        }  # fmt: skip
        error = marginal_density(graph, corpus, y, values) - summed_density(graph, corpus, y, values)
        errors.append(abs(float(error[0])))
    assert errors[0] > 4 * errors[1], errors


@pytest.mark.parametrize("story", [two_predictors, pytest.param(models.slda, marks=pytest.mark.slow), *SLOW[1:]])
def test_gradients_are_finite(story):
    """At eta = 0, where the predictor does not vary, with single tokens, a missing label and a word that no topic has."""
    corpus = corpora.Corpus.from_counts([[1, 0, 0], [0, 1, 0], [30, 2, 5]])
    graph, data = reading_of(story), data_of(corpus, np.array([0.0, 1.0, np.nan], np.float32))
    graph = replace(graph, story=replace(graph.story, masked=True))
    values = some_values(graph, corpus, draws=3)
    values["eta"] = values["eta"].at[1].set(0.0)
    values["beta"] = values["beta"].at[2].set(jnp.array([1e-36, 1e-36, 1.0]))
    for average in ("density", "log"):
        model = Marginal(graph, nodes=9, average=average)
        slope = jax.jit(jax.vmap(jax.value_and_grad(lambda values: log_density(model, data, {}, values)[0])))
        for name, leaf in jax.tree.leaves_with_path(slope(values)):
            assert np.isfinite(leaf).all(), (average, name)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_sigma_points_have_the_moments(size):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, size, size))
    root[0, :, 1:] = 0.0  # one covariance of rank one
    mean, covariance = rng.normal(size=(4, size)), root @ root.swapaxes(1, 2)
    points, log_weights = sigma_points(jnp.asarray(mean), jnp.asarray(covariance), 9)
    weights = np.exp(log_weights)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(np.einsum("q,qdc->dc", weights, points), mean, atol=1e-4)
    centred = np.asarray(points) - mean
    np.testing.assert_allclose(np.einsum("q,qdc,qde->dce", weights, centred, centred), covariance, atol=1e-3)


def test_latent_site_below_zbar():
    """Its density is averaged too; its value stays a parameter, and what is computed from zbar is dropped."""
    graph = reading_of(latent_below)
    values = some_values(graph, TINY)
    values["eta"] = 0.1 * values["eta"]  # little variance: the points are nearly exact
    exact = summed_density(graph, TINY, Y, values)
    np.testing.assert_allclose(marginal_density(graph, TINY, Y, values), exact, atol=0.01)
    model = Marginal(graph, nodes=9, average="density")
    first = {name: value[0] for name, value in values.items()}
    trace = jax.eval_shape(lambda: dict.fromkeys(log_density(model, data_of(TINY, Y), {}, first)[1], 0))
    assert "doubled" in trace and "expected" not in trace


def random_effect(corpus, y=None, *, num_topics=2):
    """A latent number a document beside the topics, which the response reads."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        effect = numpyro.sample("effect", dist.Normal(0, 0.7))
        numpyro.sample("y", dist.Normal(zbar @ eta + effect, 0.5), obs=y)


@pytest.mark.parametrize("story", [random_effect, models.mixture])
def test_scale_multiplies_what_belongs_to_documents(story):
    """A corpus of every document three times has the density of the corpus with scale 3, also where classes are summed."""
    graph, thrice = reading_of(story), np.tile(np.arange(3), 3)
    values = some_values(graph, TINY, draws=1)
    model = Marginal(graph, nodes=3, average="log")
    first = {name: value[0] for name, value in values.items()}
    scaled = jax.jit(lambda values: log_density(model, data_of(TINY, graph.y), {"scale": 3.0}, values)[0])(first)
    for name in {"theta", "effect"} & set(values):
        if graph.latent[name].document_axis is not None:
            values[name] = values[name][:, thrice]
    y = None if graph.y is None else Y[thrice]
    whole = marginal_density(graph, TINY[thrice], y, values, nodes=3, average="log")
    np.testing.assert_allclose(scaled, whole[0], rtol=1e-5)


def test_densities_of_documents_add_up_to_the_whole_but_for_what_is_not_of_documents():
    """And what another document has does not enter."""
    graph = reading_of(random_effect)
    values = some_values(graph, TINY, draws=1)
    first = {name: value[0] for name, value in values.items()}
    model = Marginal(graph, nodes=3, average="log")
    densities = jax.jit(model.document_densities)
    found = densities(*data_of(TINY, Y), first)
    whole = marginal_density(graph, TINY, Y, values, nodes=3, average="log")[0]
    priors = dist.Normal(0, 1).log_prob(first["eta"]).sum()
    priors += dist.Dirichlet(jnp.ones(3)).log_prob(first["beta"]).sum()
    np.testing.assert_allclose(found.sum(), whole - priors, rtol=1e-5)
    moved = {**first, "theta": first["theta"].at[0].set(0.5), "effect": first["effect"].at[0].set(2.0)}
    other = densities(*data_of(TINY, Y), moved)
    np.testing.assert_allclose(other[1:], found[1:], rtol=1e-6)
    assert abs(other[0] - found[0]) > 0.1


def in_two_parts(corpus, y=None, *, num_topics=2):
    """The response's mean is a sum of two predictors, so that their covariance counts."""
    theta, beta = topics_and_proportions(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics, 2]).to_event(2))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal((zbar @ eta) @ jnp.array([1.0, 2.0]), 0.5), obs=y)


def test_several_predictors_vary_together():
    """Averages of a logarithm that is a square are exact: those of one predictor that is the sum."""

    def in_one(corpus, y=None, *, num_topics=2):
        theta, beta = topics_and_proportions(corpus, num_topics)
        eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
        zbar = draw_words(corpus, theta, beta)
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)

    two, one = reading_of(in_two_parts), read(in_one, TINY, Y, {})
    values = some_values(two, TINY, draws=3)
    summed = {**values, "eta": values["eta"] @ jnp.array([1.0, 2.0])}
    found = marginal_density(two, TINY, Y, values, average="log") - dist.Normal(0, 1).log_prob(values["eta"]).sum(
        (1, 2)
    )
    same = marginal_density(one, TINY, Y, summed, average="log") - dist.Normal(0, 1).log_prob(summed["eta"]).sum(1)
    np.testing.assert_allclose(found, same, rtol=2e-4)


def discrete_switch(corpus, y=None):
    """Words' topics and a discrete site of documents beside them."""
    theta, beta = topics_and_proportions(corpus, 2)
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        switch = numpyro.sample("switch", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(zbar @ jnp.ones(2) + switch, 1.0), obs=y)


def global_label(corpus):
    """A discrete site that is not of documents."""
    label = numpyro.sample("label", dist.Bernoulli(0.5))
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("length", dist.Poisson(5.0 + label), obs=corpus.lengths)


def linked_labels(corpus):
    """Each document's length depends on the labels of all."""
    with numpyro.plate("documents", corpus.num_documents):
        label = numpyro.sample("label", dist.Bernoulli(0.5))
        numpyro.sample("length", dist.Poisson(5.0 + label.sum()), obs=corpus.lengths)


def no_plate(corpus):
    """A topic for each document, but no plate that says so."""
    label = numpyro.sample("label", dist.Bernoulli(0.5).expand([corpus.num_documents]))
    numpyro.sample("length", dist.Poisson(5.0 + label), obs=corpus.lengths)


@pytest.mark.parametrize(
    ("story", "y", "words"),
    [
        (squared_zbar, Y, "story 'squared_zbar' uses zbar other than through zbar @ eta"),
        (centred, Y, "'centred' links documents"),
        (global_label, None, "site 'label'.*is discrete"),
        (linked_labels, None, "another document's 'label'"),
    ],
)
def test_what_cannot_be_summed_out_is_refused_by_name(story, y, words):
    with pytest.raises(ValueError, match=words):
        Marginal(read(story, TINY, y, {}), nodes=9, average="density")


def test_unknown_average_is_refused():
    with pytest.raises(ValueError, match="average is 'both'; give one of 'density', 'log'"):
        Marginal(reading_of(models.slda), nodes=9, average="both")
