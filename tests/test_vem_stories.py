"""Which stories variational EM serves, and how it names what it cannot."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from by_loops import CORPUS, COUNTS, SOME_Y, K, Y
from scipy.stats import invgamma, norm

from topiczoo.corpora import Corpus
from topiczoo.inference.em import expectations
from topiczoo.inference.em.engine import vem
from topiczoo.inference.em.expectations_response import NormalResponse
from topiczoo.inference.story.reading import read
from topiczoo.models import draw_words, slda

FEW = CORPUS[:20]


def words(corpus, num_topics, theta_prior=None):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.05)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", theta_prior or dist.Dirichlet(jnp.full(num_topics, 0.1)))
    return draw_words(corpus, theta, beta)


def normal_eta(num_topics, scale=2):
    return numpyro.sample("eta", dist.Normal(0, scale).expand([num_topics]).to_event(1))


def response(corpus, mean, y, scale=1.0):
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def offset_and_weights(corpus, y=None, *, num_topics=K, slope=0.0):
    """A known offset, known weights, and a variance in place of a deviation."""
    eta, variance = normal_eta(num_topics), numpyro.sample("variance", dist.InverseGamma(2, 1))
    weight = 1.0 + 0.5 * corpus.covariates["x"]
    mean = slope * corpus.covariates["x"] + words(corpus, num_topics) @ eta
    response(corpus, mean, y, jnp.sqrt(variance / weight))


def test_the_story_may_shift_and_weight_its_response():
    """Offset, scales, the priors of eta and of the variance as the story has them; a shift of both changes nothing."""
    x = np.random.default_rng(0).random(len(CORPUS))
    corpus = Corpus.from_counts(COUNTS, covariates={"x": x})
    response = NormalResponse(read(offset_and_weights, corpus, SOME_Y + 3 * x, {"slope": 3.0}), "map")
    assert (response.name, response.eta, response.spread) == ("y", "eta", "variance")
    np.testing.assert_array_equal(response.labelled, ~np.isnan(SOME_Y))
    np.testing.assert_allclose(response.target, np.nan_to_num(SOME_Y), atol=1e-5)
    scale, log_prior = response.scale(0.7)
    np.testing.assert_allclose(scale, np.sqrt(0.7 / (1 + 0.5 * x)), rtol=1e-5)
    np.testing.assert_allclose(log_prior, invgamma.logpdf(0.7, 2, scale=1), rtol=1e-5)
    precision = response.precision(0.7)
    np.testing.assert_allclose(precision, np.where(response.labelled, (1 + 0.5 * x) / 0.7, 0), rtol=1e-5)
    eta = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(response.log_prior(eta, 0.7), norm.logpdf(eta, 0, 2).sum() + log_prior, rtol=1e-5)
    gram, moment = np.diag([1.0, 2.0, 3.0]) + 0.2, np.array([1.0, 0.0, -2.0])
    expected = np.linalg.solve(gram + np.eye(3) / 4, moment)
    np.testing.assert_allclose(response.coefficients(gram, moment), expected, rtol=1e-6)
    # the best variance given squares: sum_d [log scale + squares / (2 scale^2)] - log prior has slope 0
    squares = np.random.default_rng(1).gamma(1.0, 1.0, len(x))
    weighted = (squares * (1 + 0.5 * x))[response.labelled].sum()
    number = response.labelled.sum()
    best = (weighted / 2 + 1) / (number / 2 + 3)
    np.testing.assert_allclose(response.spread_given(squares, 0.7), best, rtol=1e-3)
    np.testing.assert_allclose(response.spread_given(squares, 0.7, prior=False), weighted / number, rtol=1e-3)
    around = (response.target - response.target[response.labelled].mean()) ** 2
    first = (around * (1 + 0.5 * x))[response.labelled].sum() / number
    np.testing.assert_allclose(response.first_spread(), first, rtol=1e-3)


# refusals


def student_t(corpus, y=None, *, num_topics=K):
    predictor = words(corpus, num_topics) @ normal_eta(num_topics)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.StudentT(3, predictor, 1.0), obs=y)


def squared(corpus, y=None, *, num_topics=K):
    response(corpus, (words(corpus, num_topics) @ normal_eta(num_topics)) ** 2, y)


def with_intercept(corpus, y=None, *, num_topics=K):
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    response(corpus, intercept + words(corpus, num_topics) @ normal_eta(num_topics), y)


def shrunken(corpus, y=None, *, num_topics=K):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    response(corpus, words(corpus, num_topics) @ normal_eta(num_topics, tau), y)


def latent_score(corpus, y=None, *, num_topics=K):
    predictor = words(corpus, num_topics) @ normal_eta(num_topics)
    with numpyro.plate("documents", corpus.num_documents):
        score = numpyro.sample("score", dist.Normal(predictor, 1.0))
        numpyro.sample("y", dist.Normal(score, 1.0), obs=y)


def laplace_eta(corpus, y=None, *, num_topics=K):
    eta = numpyro.sample("eta", dist.Laplace(0, 1).expand([num_topics]).to_event(1))
    response(corpus, words(corpus, num_topics) @ eta, y)


def drawn_alpha(corpus, *, num_topics=K):
    alpha = numpyro.sample("alpha", dist.Gamma(1, 1))
    words(corpus, num_topics, dist.Dirichlet(jnp.full(num_topics, alpha)))


def reads_theta(corpus, y=None, *, num_topics=K):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.05)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.1)))
        numpyro.sample("y", dist.Normal(theta[:, 0], 1.0), obs=y)
    draw_words(corpus, theta, beta)


@pytest.mark.parametrize(
    ("story", "site"),
    [
        (student_t, "y"), (squared, "y"), (with_intercept, "intercept"), (shrunken, "tau"), (latent_score, "score"),
        (laplace_eta, "eta"), (drawn_alpha, "alpha"), (reads_theta, "y"),
    ],
)  # fmt: skip
def test_what_vem_cannot_serve_it_names(story, site, monkeypatch):
    """With advice on what would serve it, which takes long to find and is looked at once."""
    advice = "use .*gibbs" if story is shrunken else "$"
    if story is not shrunken:
        monkeypatch.setattr(expectations, "unserved", lambda graph, engines, why: ValueError(why))
    with pytest.raises(ValueError, match=f"vem cannot serve the site '{site}'.*{advice}"):
        vem(story, FEW, None if story is drawn_alpha else Y[:20], order="sequential", progress_bar=False)


def test_a_laplace_prior_is_left_out_by_maximum_likelihood():
    response = NormalResponse(read(laplace_eta, CORPUS, Y, {}), "mle")
    gram, moment = np.diag([1.0, 2.0, 3.0]) + 0.2, np.array([1.0, 0.0, -2.0])
    np.testing.assert_allclose(response.coefficients(gram, moment), np.linalg.solve(gram, moment), rtol=1e-6)
    assert response.log_prior(np.ones(3), 0.0) == 0 and response.spread is None


@pytest.mark.slow
def test_a_response_beyond_float32_names_its_site():
    with pytest.raises(FloatingPointError, match="'y'"):
        vem(slda, FEW, Y[:20] * 1e25, num_topics=K, progress_bar=False, num_draws=1)
