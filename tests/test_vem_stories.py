"""Which stories variational EM serves, and how it names what it cannot."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from test_vem import CORPUS, COUNTS, ROUNDING, SOME_Y, K, Y

from topiczoo.corpora import Corpus
from topiczoo.inference.vem_engine import vem
from topiczoo.models import draw_words, lda, slda


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
    """A known offset in story and response alike changes nothing; the variance site is estimated as it stands."""
    x = np.random.default_rng(0).random(len(CORPUS))
    corpus = Corpus.from_counts(COUNTS, covariates={"x": x})
    options = {"num_topics": K, "progress_bar": False, "num_draws": 1, "tolerance": 1e-5}
    plain = vem(offset_and_weights, corpus, SOME_Y, **options)
    shifted = vem(offset_and_weights, corpus, SOME_Y + 3 * x, slope=3.0, **options)
    assert (np.diff(plain.info["bound"]) > -ROUNDING * abs(plain.info["bound"][-1])).all()
    np.testing.assert_allclose(shifted.info["bound"][-1], plain.info["bound"][-1], rtol=1e-4)
    np.testing.assert_allclose(shifted.means["eta"], plain.means["eta"], rtol=0.02, atol=0.02)
    np.testing.assert_allclose(shifted.means["variance"], plain.means["variance"], rtol=0.05)


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
def test_what_vem_cannot_serve_it_names(story, site):
    with pytest.raises(ValueError, match=f"vem cannot serve the site '{site}'.*use .*gibbs"):
        vem(story, CORPUS, None if story is drawn_alpha else Y, order="sequential", progress_bar=False)


def test_a_laplace_prior_is_left_out_by_maximum_likelihood():
    fit = vem(laplace_eta, CORPUS, Y, point="mle", progress_bar=False, num_iterations=3, num_draws=1)
    assert np.isfinite(fit.means["eta"]).all()


def test_a_response_beyond_float32_names_its_site():
    with pytest.raises(FloatingPointError, match="'y'"):
        vem(slda, CORPUS, Y * 1e25, num_topics=K, progress_bar=False, num_draws=1)


@pytest.mark.parametrize("name", ["topics", "point"])
def test_a_wrong_choice_is_named(name):
    with pytest.raises(ValueError, match=f"{name} is 'best'; choose from"):
        vem(lda, CORPUS, **{name: "best"})
