"""Which stories variational EM serves, and how it names what it cannot."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from by_loops import CORPUS, COUNTS, SOME_Y, K, Y
from scipy.stats import invgamma, norm

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.engine import vem
from topiczoo.inference.em.responses import SmoothResponse
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
    """Targets and precisions, the priors of eta and of the variance, and the best variance, as the story has them."""
    x = np.random.default_rng(0).random(len(CORPUS))
    corpus = Corpus.from_counts(COUNTS, covariates={"x": x})
    graph = read(offset_and_weights, corpus, SOME_Y + 3 * x, {"slope": 3.0})
    response = SmoothResponse(graph, Settings(order="sequential"))
    assert (response.responses, response.eta, response.others) == (("y",), "eta", ["variance"])
    eta, labelled = np.array([0.3, -1.0, 2.0]), ~np.isnan(SOME_Y)
    values = {"eta": jnp.asarray(eta, jnp.float32), "variance": jnp.float32(0.7)}
    target, precision = response.as_normal(values)
    np.testing.assert_allclose(target, np.nan_to_num(SOME_Y), atol=1e-5)
    np.testing.assert_allclose(precision, np.where(labelled, (1 + 0.5 * x) / 0.7, 0), rtol=1e-4)
    prior = norm.logpdf(eta, 0, 2).sum() + invgamma.logpdf(0.7, 2, scale=1)
    np.testing.assert_allclose(response.log_prior(values), prior, rtol=1e-5)
    # the best variance given squares: sum_d [log scale + squares / (2 scale^2)] - log prior has slope 0
    squares = np.random.default_rng(1).gamma(1.0, 1.0, len(x))
    weighted, number = (squares * (1 + 0.5 * x))[labelled].sum(), labelled.sum()
    at = jnp.asarray(target, jnp.float32)[:, None], jnp.asarray(squares, jnp.float32)[:, None, None]
    moved = response.points.m_step(values, response.data, response.few, {"eta": values["eta"]}, [({}, None, *at)])
    np.testing.assert_allclose(moved["variance"], (weighted / 2 + 1) / (number / 2 + 3), rtol=1e-3)
    around = (target - target[labelled].mean()) ** 2
    first = (around * (1 + 0.5 * x))[labelled].sum() / number
    np.testing.assert_allclose(response.at_deviation_of_y(values)["variance"], first, rtol=1e-3)


# refusals


def student_t(corpus, y=None, *, num_topics=K):
    predictor = words(corpus, num_topics) @ normal_eta(num_topics)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.StudentT(3, predictor, 1.0), obs=y)


def squared(corpus, y=None, *, num_topics=K):
    response(corpus, (words(corpus, num_topics) @ normal_eta(num_topics)) ** 2, y)


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
        (student_t, "y"), (squared, "y"), (shrunken, "tau"), (latent_score, "score"), (reads_theta, "y"),
    ],
)  # fmt: skip
def test_what_vem_cannot_serve_it_names(story, site):
    """With advice on what would serve it, which takes long to find and is looked at once."""
    advice, run = ("use .*gibbs", inference.vem) if story is shrunken else ("", vem)
    with pytest.raises(ValueError, match=f"vem cannot serve the site '{site}'.*{advice}"):
        run(story, FEW, Y[:20], progress_bar=False, order="sequential")


def test_a_laplace_prior_is_left_out_by_maximum_likelihood():
    values = {"eta": jnp.ones(3)}
    graph = read(laplace_eta, CORPUS, Y, {})
    assert float(SmoothResponse(graph, Settings(point="mle")).log_prior(values)) == 0
    np.testing.assert_allclose(SmoothResponse(graph, Settings()).log_prior(values), -3 - 3 * np.log(2), rtol=1e-5)


@pytest.mark.slow
def test_a_response_beyond_float32_names_its_site():
    with pytest.raises(FloatingPointError, match="'y'"):
        vem(slda, FEW, Y[:20] * 1e25, num_topics=K, progress_bar=False, num_draws=1)
