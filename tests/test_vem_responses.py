"""Variational EM in the parallel order: any response, a bound that never falls, and the normal one by loops."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from scipy.special import digamma, gammaln, softmax
from test_vem import CORPUS, COUNTS, ROUNDING, SOME_Y, K, Y, document_bound

from topiczoo.corpora import Corpus
from topiczoo.inference import vem
from topiczoo.inference.expectations import Settings
from topiczoo.inference.expectations_general import GlmWords
from topiczoo.inference.expectations_glm import GlmResponse, sums_of
from topiczoo.inference.reading import read
from topiczoo.inference.sweep import CHUNK
from topiczoo.inference.word_steps import Chunk
from topiczoo.models import draw_words, slda, slda_glm


def bernoulli(corpus, y=None, *, num_topics=2):
    beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics)
    zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Bernoulli(logits=zbar @ eta), obs=y)


def classes(corpus, y=None, *, num_topics=2):
    beta = stories.topics(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([num_topics, 3]).to_event(2))
    zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Categorical(logits=zbar @ eta), obs=y)


def ordered(corpus, y=None, *, num_topics=2):
    beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics, dist.Normal(0, 3))
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(
        dist.Normal(0, 2).expand([2]).to_event(1), dist.transforms.OrderedTransform()
    ))  # fmt: skip
    zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.OrderedLogistic(zbar @ eta, cuts), obs=y)


LEVELS = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])).astype(float)
UNLABELLED = np.isnan(SOME_Y)
RESPONSES = {
    "normal": (slda, SOME_Y),
    "student_t": (stories.student_t, SOME_Y),
    "poisson": (stories.poisson, np.where(UNLABELLED, np.nan, np.round(np.exp(Y + 0.5)))),
    "negative_binomial": (stories.negative_binomial, np.where(UNLABELLED, np.nan, np.round(np.exp(Y + 0.5)))),
    "bernoulli": (bernoulli, np.where(UNLABELLED, np.nan, Y > 0)),
    "classes": (classes, np.where(UNLABELLED, np.nan, LEVELS)),
    "ordered": (ordered, np.where(UNLABELLED, np.nan, LEVELS)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "poisson" else pytest.mark.slow) for name in RESPONSES]
)
def test_the_bound_never_falls_and_the_response_is_learned(name):
    story, y = RESPONSES[name]
    fit = vem(story, CORPUS, y, num_topics=K, order="parallel", num_iterations=25, progress_bar=False)
    bound = np.array(fit.info["bound"])
    assert "warning" not in fit.info
    assert (np.diff(bound) >= -ROUNDING * np.abs(bound[:-1])).all(), np.diff(bound).min()
    predicted = fit.predict(CORPUS[UNLABELLED], most_draws=20, num_burn=5)
    if predicted.probabilities is not None:
        truth = Y > 0 if name == "bernoulli" else LEVELS
        assert (predicted.label == truth[UNLABELLED]).mean() > 0.5  # of 12; by chance half or a third
    else:
        assert np.corrcoef(predicted.mean, Y[UNLABELLED])[0, 1] > 0.7


def test_the_documents_bound_is_equation_2():
    """With phi shared by the occurrences of a term, against loops over its tokens."""
    form = GlmWords(read(slda, CORPUS, Y, {"num_topics": K, "alpha": 0.4, "gamma": 0.2}), Settings(e_iterations=7))
    state = form.expect(form.start(np.random.default_rng(0)), fresh=True)
    settled, eta = state.settled, np.asarray(state.values["eta"], float)
    log_beta = form.topics.log_mean(state.topics)
    for d in (0, 7, 31):
        gamma = np.asarray(settled.gamma[d], float)
        weights = digamma(gamma) - digamma(gamma.sum()) + np.asarray(settled.tilt[d], float)
        terms = np.repeat(np.arange(COUNTS.shape[1]), COUNTS[d])
        phi = np.exp(weights + log_beta[:, terms].T)
        phi /= phi.sum(1, keepdims=True)
        np.testing.assert_allclose(settled.tokens[d], phi.sum(0), rtol=1e-3, atol=1e-3)
        expected = document_bound(
            phi, gamma, log_beta[:, terms].T, np.full(K, 0.4), Y[d], eta, float(state.values["sigma"])
        )
        np.testing.assert_allclose(settled.bound[d], expected, rtol=1e-4)


def test_normal_coefficients_solve_equation_10():
    """E[A'A] eta = E[A]'y, with E[A'A] summed token by token as in equation 5."""
    form = GlmWords(read(slda, CORPUS, Y, {"num_topics": K}), Settings(e_iterations=7, point="mle"))
    state = form.expect(form.start(np.random.default_rng(0)), fresh=True)
    settled, log_beta = state.settled, form.topics.log_mean(state.topics)
    gram, moment = np.zeros((K, K)), np.zeros(K)
    for d in range(len(COUNTS)):
        gamma = np.asarray(settled.gamma[d], float)
        weights = digamma(gamma) - digamma(gamma.sum()) + np.asarray(settled.tilt[d], float)
        terms = np.repeat(np.arange(COUNTS.shape[1]), COUNTS[d])
        phi = np.exp(weights + log_beta[:, terms].T)
        phi /= phi.sum(1, keepdims=True)
        total = phi.sum(0)
        gram += (np.outer(total, total) - phi.T @ phi + np.diag(total)) / len(terms) ** 2
        moment += total / len(terms) * Y[d]
    values, *_ = form._move_eta(state)
    np.testing.assert_allclose(values["eta"], np.linalg.solve(gram, moment), rtol=0.01, atol=0.01)
    assert np.abs(np.asarray(values["eta"] - state.values["eta"])).max() > 0.05


@pytest.mark.slow
def test_both_orders_predict_alike():
    fits = [
        vem(slda, CORPUS, SOME_Y, num_topics=K, order=order, seed=1, progress_bar=False)
        for order in ("sequential", "parallel")
    ]
    first, second = (fit.predict(CORPUS[UNLABELLED], most_draws=20, num_burn=5).mean for fit in fits)
    assert np.corrcoef(first, second)[0, 1] > 0.9


def test_what_the_parallel_order_refuses():
    with pytest.raises(ValueError, match="order is 'random'; choose from 'parallel', 'sequential'"):
        vem(slda, CORPUS, Y, num_topics=K, order="random")
    with pytest.raises(ValueError, match="site 'rate' of the story 'latent_below': it is latent and depends on zbar"):
        vem(stories.latent_below, CORPUS, Y, num_topics=K, order="parallel")
    with pytest.raises(ValueError, match="otherwise than through one zbar @ eta"):
        vem(stories.mean_and_scale, CORPUS, Y, num_topics=K, order="parallel")


def test_expectations_of_a_count_against_the_product_over_words():
    """E[exp(eta . zbar)] is a product over words under q: found exactly, by moments nearly, by the delta method less so."""
    rng = np.random.default_rng(5)
    counts = rng.poisson(3.0, COUNTS.shape) + 1
    y = rng.poisson(2.0, len(counts)).astype(float)
    corpus = Corpus.from_counts(counts)
    eta = np.linspace(-3, 3, K).astype(np.float32)
    phi = [rng.dirichlet(np.full(K, 0.5), row.sum()) for row in counts]
    mean = np.array([part.mean(0) @ eta for part in phi])
    variance = np.array([((part @ eta**2) - (part @ eta) ** 2).sum() / len(part) ** 2 for part in phi])
    growth = np.array([np.prod(part @ np.exp(eta / len(part))) for part in phi])
    exact = y * mean - growth - gammaln(y + 1)
    reading = read(slda_glm, corpus, y, {"num_topics": K, "response": "poisson"})
    gaps = {}
    cumulant = 2 * (np.log(growth) - mean)
    for expectation, spread in (("sigma points", cumulant), ("moments", variance), ("delta", variance)):
        response = GlmResponse(reading, "map", "delta" if expectation == "delta" else "sigma points")
        assert response.log_linear == (expectation != "delta")
        moments = jnp.asarray(mean, jnp.float32)[:, None], jnp.asarray(spread, jnp.float32)[:, None, None]
        found = response.terms({**response.start(), "eta": jnp.asarray(eta)}, *response.data, *moments)
        gaps[expectation] = np.abs(np.asarray(found) - exact).max()
    assert gaps["sigma points"] < 2e-5 and gaps["moments"] < 1e-3 and gaps["delta"] < 0.05


def test_the_bound_of_a_count_holds_the_product_over_words():
    """What the E-step calls the response's share of the bound, against loops over words at its own phi."""
    rng = np.random.default_rng(6)
    corpus = Corpus.from_counts(rng.poisson(1.5, (12, 9)) + np.eye(12, 9, dtype=int))
    y = rng.poisson(2.0, 12).astype(float)
    form = GlmWords(read(slda_glm, corpus, y, {"num_topics": K, "response": "poisson"}), Settings(e_iterations=5))
    state = form.expect(form.start(rng), True)
    settled, eta = state.settled, np.asarray(state.values["eta"], float)
    weights = digamma(np.asarray(settled.gamma, float))
    weights += np.asarray(settled.tilt, float) - digamma(np.asarray(settled.gamma, float).sum(1))[:, None]
    log_beta = np.asarray(form._log_beta(state.topics), float)
    cumulant = []
    for d, row in enumerate(corpus.counts.toarray()):
        terms = np.repeat(np.arange(9), row)
        phi = softmax(weights[d] + log_beta[terms], -1)
        cumulant.append(np.log(phi @ np.exp(eta / len(terms))).sum())
    found = np.asarray(settled.mean[:, 0] + settled.covariance[:, 0, 0] / 2, float)
    np.testing.assert_allclose(found, cumulant, atol=2e-6)
    moved = form._moments(jnp.asarray(eta[:, None], jnp.float32), state)
    np.testing.assert_allclose(moved[0][:, 0] + moved[1][:, 0, 0] / 2, cumulant, atol=2e-6)


def test_the_delta_method_is_exact_for_a_normal_response():
    moments = jnp.full((len(COUNTS), 1), 0.3), jnp.full((len(COUNTS), 1, 1), 0.2)
    reading = read(slda, CORPUS, Y, {"num_topics": K})
    found = []
    for expectation in ("sigma points", "delta"):
        response = GlmResponse(reading, "map", expectation)
        found.append(response.terms(response.start(), *response.data, *moments))
    np.testing.assert_allclose(*found, rtol=1e-4)


@pytest.mark.parametrize("size", [1, 3])
def test_products_of_phi_are_those_of_the_formula(size):
    rng = np.random.default_rng(0)
    width, topics = 5, 4
    phi = rng.dirichlet(np.ones(topics), (CHUNK, width))
    count, curve = rng.poisson(2, (CHUNK, width)), rng.normal(size=(size, size, width))
    curve, eta = curve + curve.swapaxes(0, 1), rng.normal(size=(topics, size))
    rows = [jnp.asarray(part.reshape(-1, topics), jnp.float32) for part in (phi * count[..., None], phi)]
    products, pull = sums_of(Chunk(*rows, None), jnp.asarray(curve, jnp.float32), jnp.asarray(eta, jnp.float32))
    np.testing.assert_allclose(products, np.einsum("ccd,nd,ndk,ndl->ckl", curve, count, phi, phi), rtol=1e-4, atol=1e-4)
    expected = np.einsum("nd,ndk,ced,ndl,le->kc", count, phi, curve, phi, eta)
    np.testing.assert_allclose(pull, expected, rtol=1e-4, atol=1e-4)
