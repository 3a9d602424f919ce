"""The explicit log-density of the zoo's stories, site by site, against SciPy's formulas: the reference of every engine.

Values of all sites are given, so that nothing is drawn and nothing is left to chance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats
from scipy.special import expit, log_softmax

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.inference.story.tracing import Story, ZbarHandler, log_prob, run, total
from topiczoo.models import RESPONSES

COUNTS = np.array([[2, 1, 0], [0, 1, 3], [1, 0, 1], [0, 0, 2]])
AGE = np.array([0.5, -1.0, 2.0, 0.3])
CORPUS = Corpus.from_counts(COUNTS, covariates={"age": AGE})
BETA = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])
THETA = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5], [0.9, 0.1]])
Z = np.array([0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 0])
DOCUMENT, TERM = CORPUS.tokens()
ZBAR = np.array([[np.mean(Z[DOCUMENT == d] == k) for k in range(2)] for d in range(4)])
ALPHA, GAMMA = np.array([0.4, 0.9]), 0.3
ETA, WIDE = np.array([0.7, -1.1]), np.array([[0.7, 0.2, -0.5], [-1.1, 0.4, 0.9]])
WORDS = {"num_topics": 2, "alpha": ALPHA, "gamma": GAMMA}
GIVEN = {"beta": BETA, "theta": THETA, "z": Z}


def dirichlet(rows, concentration):
    return sum(stats.dirichlet.logpdf(row, concentration) for row in rows)


TOPICS = {
    "beta": dirichlet(BETA, [GAMMA] * 3), "theta": dirichlet(THETA, ALPHA),
    "z": np.log(THETA[DOCUMENT, Z]).sum(), "w": np.log(BETA[Z, TERM]).sum(),
}  # fmt: skip


def densities(story, y=None, values=GIVEN, **arguments):
    """The sum of every sample site's log-density."""

    @jax.jit
    def by_site(values):
        trace = run(Story(story, arguments), CORPUS, None if y is None else jnp.asarray(y), values)
        return {name: log_prob(site).sum() for name, site in trace.items() if site["type"] == "sample"}

    return {name: float(density) for name, density in by_site(dict(values)).items()}


def assert_densities(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-5, err_msg=name)


def test_latent_dirichlet_allocation():
    assert_densities(densities(models.lda, **WORDS), TOPICS)


def test_mixture():
    topic = np.array([1, 0, 1, 0])
    found = densities(models.mixture, values={"beta": BETA, "theta": THETA[0], "z": topic}, **WORDS)
    words = (COUNTS * np.log(BETA[topic])).sum()
    expected = {
        "beta": TOPICS["beta"],
        "theta": dirichlet(THETA[:1], ALPHA),
        "z": np.log(THETA[0, topic]).sum(),
        "w": words,
    }
    assert_densities(found, expected)


def test_supervised():
    """A response that is missing counts for nothing."""
    y = np.array([0.4, np.nan, -0.2, 1.3])
    found = densities(models.slda, y, {**GIVEN, "eta": ETA, "sigma": 0.6}, **WORDS)
    of_y = np.nansum(stats.norm.logpdf(y, ZBAR @ ETA, 0.6))
    of_eta, of_sigma = stats.norm.logpdf(ETA, 0, 2).sum(), stats.halfnorm.logpdf(0.6)
    assert_densities(found, TOPICS | {"eta": of_eta, "sigma": of_sigma, "y": of_y})


def test_any_response_with_covariates():
    y, slope = np.array([0.4, np.nan, -0.2, 1.3]), 0.6
    settings = {**WORDS, "covariates": ["age"], "scale": 1.7, "response": "student_t", "options": {"df": 5.0}}
    found = densities(models.slda_glm, y, {**GIVEN, "eta": ETA, "sigma": 0.8, "slope_age": slope}, **settings)
    of_y = np.nansum(stats.t.logpdf(y, 5, ZBAR @ ETA + slope * AGE, 0.8))
    expected = {"eta": stats.norm.logpdf(ETA, 0, 1.7).sum(), "slope_age": stats.norm.logpdf(slope, 0, 1.7), "y": of_y}
    assert_densities(found, TOPICS | expected | {"sigma": stats.halfnorm.logpdf(0.8)})


def test_several_responses_with_covariates():
    """A row of responses with one missing counts for nothing."""
    y = np.array([[0.4, 1, 0], [np.nan, 0, 1], [-0.2, 0.1, 2], [1.3, -1, 0.4]])
    slope, sigma = np.array([0.6, -0.1, 0.3]), np.array([0.5, 1.2, 0.9])
    settings = {**WORDS, "covariates": ["age"], "outputs": 3}
    found = densities(models.slda_glm, y, {**GIVEN, "eta": WIDE, "sigma": sigma, "slope_age": slope}, **settings)
    of_y = stats.norm.logpdf(y, ZBAR @ WIDE + np.outer(AGE, slope), sigma)[[0, 2, 3]].sum()
    expected = {
        "eta": stats.norm.logpdf(WIDE, 0, 2).sum(),
        "slope_age": stats.norm.logpdf(slope, 0, 2).sum(),
        "y": of_y,
    }
    assert_densities(found, TOPICS | expected | {"sigma": stats.halfnorm.logpdf(sigma).sum()})


X, CUTS = np.array([-0.9, 0.1, 0.8, 1.7]), np.array([-0.5, 0.4])
POSITIVE, COUNTED, BINARY = np.array([0.3, 1.1, 2.4, 4.0]), np.array([0, 1, 3, 6]), np.array([1, 0, 0, 1])
LOGS = {
    "normal": ({"sigma": 0.7}, X + 0.2, stats.norm.logpdf(0.2, 0, 0.7) + 0 * X, stats.halfnorm.logpdf(0.7)),
    "student_t": ({"sigma": 0.7}, X + 0.2, stats.t.logpdf(0.2, 4, 0, 0.7) + 0 * X, stats.halfnorm.logpdf(0.7)),
    "logit": ({}, BINARY, stats.bernoulli.logpmf(BINARY, expit(X)), 0),
    "probit": ({}, BINARY, stats.bernoulli.logpmf(BINARY, stats.norm.cdf(X)), 0),
    "binomial": ({}, [0, 2, 3, 5], stats.binom.logpmf([0, 2, 3, 5], 5, expit(X)), 0),
    "poisson": ({}, COUNTED, stats.poisson.logpmf(COUNTED, np.exp(X)), 0),
    "negative_binomial": ({"size": 1.8}, COUNTED, stats.nbinom.logpmf(COUNTED, 1.8, 1.8 / (1.8 + np.exp(X))),
                          stats.gamma.logpdf(1.8, 2, scale=2)),
    "gamma": ({"shape": 1.8}, POSITIVE, stats.gamma.logpdf(POSITIVE, 1.8, scale=np.exp(X) / 1.8),
              stats.gamma.logpdf(1.8, 2, scale=2)),
    "inverse_gaussian": ({"shape": 1.8}, POSITIVE, stats.invgauss.logpdf(POSITIVE, np.exp(X) / 1.8, scale=1.8),
                         stats.gamma.logpdf(1.8, 2, scale=2)),
    "weibull": ({"shape": 1.8}, POSITIVE, stats.weibull_min.logpdf(POSITIVE, 1.8, scale=np.exp(X)),
                stats.lognorm.logpdf(1.8, 0.5)),
    "ordered": ({"cuts": CUTS}, [0, 1, 2, 1], np.log([expit(CUTS[0] - X[0]), expit(CUTS[1] - X[1]) - expit(CUTS[0] - X[1]),
                                                      expit(X[2] - CUTS[1]), expit(CUTS[1] - X[3]) - expit(CUTS[0] - X[3])]),
                # normal in the first cut and in the log of the gap
                stats.norm.logpdf(-0.5, 0, 2) + stats.norm.logpdf(np.log(0.9), 0, 2) - np.log(0.9)),
    "softmax": ({}, [2, 0, 1, 2], log_softmax(ZBAR @ WIDE, 1)[np.arange(4), [2, 0, 1, 2]], 0),
}  # fmt: skip
OPTIONS = {"binomial": {"total_count": 5}, "ordered": {"num_classes": 3}, "softmax": {}}


@pytest.mark.parametrize("name", RESPONSES)
def test_every_response_has_its_density(name):
    """Of y given the predictor, document by document, and of the response's own parameters."""
    parameters, y, expected, of_parameters = LOGS[name]
    x = jnp.asarray(ZBAR @ WIDE if name == "softmax" else X, jnp.float32)
    given = {site: jnp.asarray(value, jnp.float32) for site, value in parameters.items()}
    with handlers.trace() as trace, handlers.substitute(data=given):
        respond = RESPONSES[name](x, **OPTIONS.get(name, {}))
    np.testing.assert_allclose(respond.log_prob(jnp.asarray(y)), expected, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(total(trace), of_parameters, rtol=1e-4, atol=1e-6)
    assert trace.keys() == parameters.keys()


def test_means_of_responses_are_the_inverse_link():
    with handlers.substitute(data={"size": jnp.array(1.8), "shape": jnp.array(1.8)}):
        found = {
            name: RESPONSES[name](jnp.asarray(X))
            for name in ("poisson", "negative_binomial", "gamma", "inverse_gaussian")
        }
    for law in found.values():
        np.testing.assert_allclose(law.mean, np.exp(X), rtol=1e-4)
    np.testing.assert_allclose(found["negative_binomial"].variance, np.exp(X) + np.exp(2 * X) / 1.8, rtol=1e-4)


REAL = np.array([0.4, np.nan, -0.2, 1.3])


NEAR = np.array([0.03, -1.1])  # one coefficient in the spike, one in the slab


def spike_and_slab(eta, nu, inclusion):
    parts = (1 - inclusion) * stats.norm.pdf(eta, 0, 0.05 * nu) + inclusion * stats.norm.pdf(eta, 0, nu)
    return np.log(parts).sum()


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        ({}, {"nu": 0.8}, {"nu": stats.invgamma.logpdf(0.8, 2), "eta": stats.laplace.logpdf(NEAR, 0, 0.8).sum()}),
        ({"nu": 0.5}, {}, {"eta": stats.laplace.logpdf(NEAR, 0, 0.5).sum()}),
        ({"prior": "horseshoe"}, {"nu": 0.8, "local": np.array([0.5, 2.0])},
         {"nu": stats.halfcauchy.logpdf(0.8), "local": stats.halfcauchy.logpdf([0.5, 2.0]).sum(),
          "eta": stats.norm.logpdf(NEAR, 0, 0.8 * np.array([0.5, 2.0])).sum()}),
        ({"prior": "spike_and_slab"}, {"inclusion": 0.3},
         {"inclusion": stats.beta.logpdf(0.3, 1, 4), "eta": spike_and_slab(NEAR, 2.0, 0.3)}),
        ({"prior": "spike_and_slab", "nu": 0.9}, {"inclusion": 0.3},
         {"inclusion": stats.beta.logpdf(0.3, 1, 4), "eta": spike_and_slab(NEAR, 0.9, 0.3)}),
        ({"prior": "dense"}, {}, {"eta": stats.norm.logpdf(NEAR, 0, 2).sum()}),
        ({"prior": "dense", "nu": 0.7}, {}, {"eta": stats.norm.logpdf(NEAR, 0, 0.7).sum()}),
    ],
)  # fmt: skip
def test_sparse_coefficients(settings, own, expected):
    found = densities(models.sstm, REAL, {**GIVEN, "eta": NEAR, "sigma": 0.6, **own}, **WORDS, **settings)
    of_y = {"sigma": stats.halfnorm.logpdf(0.6), "y": np.nansum(stats.norm.logpdf(REAL, ZBAR @ NEAR, 0.6))}
    assert_densities(found, TOPICS | of_y | expected)


def test_sparse_coefficients_above_two_classes_side_by_side():
    y = np.array([[1, 0, 1], [0, 1, 0], [np.nan, 0, 1], [1, 1, 0]])
    values, settings = {**GIVEN, "eta": WIDE}, {"response": "probit", "outputs": 3, "sigma": 0.5, "nu": 0.5}
    x = ZBAR @ WIDE / 0.5
    of_y = stats.norm.logcdf((2 * y - 1) * x)[[0, 1, 3]].sum()
    assert_densities(
        densities(models.sstm, y, values, **WORDS, **settings),
        TOPICS | {"eta": stats.laplace.logpdf(WIDE, 0, 0.5).sum(), "y": of_y},
    )
    plain = {"response": "probit", "nu": 0.5}  # without sigma it is 1
    found = densities(models.sstm, y[:, 1], {**GIVEN, "eta": ETA}, **WORDS, **plain)
    np.testing.assert_allclose(found["y"], stats.norm.logcdf((2 * y[:, 1] - 1) * (ZBAR @ ETA)).sum(), rtol=1e-5)


def loss(margin, y, scores, cost, epsilon):
    """Each loss as the papers write it."""
    if margin in ("regression", "partial"):
        return max(0.0, abs(y - scores) - epsilon)
    if margin == "binary":
        return max(0.0, cost - (2 * y - 1) * scores)
    classes, y = range(len(scores)), int(y)
    if margin == "classes":
        return max(cost * (c != y) + scores[c] - scores[y] for c in classes)
    return sum(max(0.0, cost - (1 if c == y else -1) * scores[c]) for c in classes)


@pytest.mark.parametrize("margin", ["binary", "classes", "one_against_all", "regression", "partial"])
def test_max_margin(margin):
    settings = {"margin": margin, "weight": 1.4, "cost": 0.9, "epsilon": 0.15, "nu": 0.7}
    classes, several = margin not in ("regression", "partial"), margin in ("classes", "one_against_all")
    y = {"binary": np.array([1, 0, np.nan, 1.0])}.get(margin, np.array([2, 0, np.nan, 1.0]) if classes else REAL)
    eta = WIDE if several else ETA
    given = {**GIVEN, "eta": eta} | ({"sigma": 0.6} if margin == "regression" else {})
    found = densities(models.medlda, y, given, **WORDS, **settings, **({"outputs": 3} if several else {}))
    seen = np.flatnonzero(~np.isnan(y))
    losses = sum(loss(margin, y[d], (ZBAR @ eta)[d], 0.9, 0.15) for d in seen)
    of_margin = -1.4 * losses - (0 if classes else len(seen) * np.log(2 * 0.15 + 2 / 1.4))
    expected = TOPICS | {"eta": stats.norm.logpdf(eta, 0, 0.7).sum(), "y": of_margin}
    if margin == "regression":
        of_y = np.nansum(stats.norm.logpdf(y, ZBAR @ eta, 0.6))
        expected |= {"margin": of_margin, "y": of_y, "sigma": stats.halfnorm.logpdf(0.6)}
    assert_densities(found, expected)


def test_a_topic_of_a_document_without_words_has_no_share():
    corpus = Corpus.from_counts(np.array([[2, 0], [0, 0]]), empty="keep")
    zbar = handlers.substitute(models.draw_words, data={"z": jnp.array([1, 1])})(
        corpus, jnp.full((2, 2), 0.5), jnp.full((2, 2), 0.5)
    )
    np.testing.assert_array_equal(zbar, [[0, 1], [0, 0]])


def test_words_of_a_label_come_from_its_own_topics():
    beta, label = np.stack([BETA, BETA[::-1, ::-1]]), np.array([1, 0, 0, 1])

    def labelled(corpus):
        models.draw_words(corpus, jnp.asarray(THETA), jnp.asarray(beta), label=label)

    found = densities(labelled, values={"z": Z})
    assert_densities(found, {"z": TOPICS["z"], "w": np.log(beta[label[DOCUMENT], Z, TERM]).sum()})


def test_the_classes_own_topics_leak():
    """Of five topics the first is shared; the second and fourth are of class 0, the others of class 1."""
    rng = np.random.default_rng(0)
    beta, theta, y = rng.dirichlet(np.ones(3), 5), rng.dirichlet(np.full(5, 3.0), 4), np.array([1, 0, 1, 0])
    z, pi = rng.integers(0, 5, 11), np.array([0.3, 0.7])
    settings = {"outputs": 2, "shared": 1, "num_topics": 5, "alpha": 0.4, "leak": 0.05, "gamma": GAMMA}
    found = densities(models.disclda, y, {"beta": beta, "theta": theta, "z": z, "pi": pi}, **settings)
    concentration = 0.4 * np.array([[1, 1, 0.05, 1, 0.05], [1, 0.05, 1, 0.05, 1]])
    assert_densities(found, {
        "beta": dirichlet(beta, [GAMMA] * 3), "pi": stats.dirichlet.logpdf(pi, [1, 1]), "y": np.log(pi[y]).sum(),
        "theta": sum(stats.dirichlet.logpdf(row, concentration[c]) for row, c in zip(theta, y, strict=True)),
        "z": np.log(theta[DOCUMENT, z]).sum(), "w": np.log(beta[z, TERM]).sum(),
    })  # fmt: skip


def test_a_density_that_the_story_weighs_is_weighed():
    def weighed(corpus, y=None):
        with numpyro.handlers.scale(scale=2.5):
            level = numpyro.sample("level", dist.Normal(0, 1))
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", dist.Normal(level, 0.7), obs=y)

    found = densities(weighed, REAL, {"level": 0.4})
    assert_densities(found, {"level": 2.5 * stats.norm.logpdf(0.4), "y": np.nansum(stats.norm.logpdf(REAL, 0.4, 0.7))})
    trace = run(Story(weighed, {}), CORPUS, jnp.asarray(REAL), {"level": 0.4})
    np.testing.assert_allclose(total(trace), sum(found.values()), rtol=1e-6)
    np.testing.assert_allclose(total(trace, ["y"]), found["y"], rtol=1e-6)


def test_an_answer_gives_the_predictors_in_the_order_of_asking():
    """Two predictors of one zbar: their coefficients are remembered, and what is given comes in their place."""
    seen = {}

    def asking(corpus, y=None):
        zbar = models.draw_words(corpus, jnp.asarray(THETA), jnp.asarray(BETA))
        seen["x"] = [zbar @ jnp.asarray(ETA), zbar @ jnp.asarray(WIDE)]

    answer = ZbarHandler(jnp.asarray(ZBAR))
    run(Story(asking, {}), CORPUS, None, {}, answer)
    np.testing.assert_allclose(seen["x"][0], ZBAR @ ETA, rtol=1e-5)
    np.testing.assert_allclose(seen["x"][1], ZBAR @ WIDE, rtol=1e-5)
    np.testing.assert_allclose(answer.coefficients[0], ETA)
    np.testing.assert_allclose(answer.coefficients[1], WIDE)
    assert answer.linear and answer.calls == 1 and answer.label is None
    np.testing.assert_allclose(answer.theta, THETA)
    given = [np.full(4, 7.0), np.full((4, 3), 8.0)]
    answer = ZbarHandler(lambda theta: theta, given)
    run(Story(asking, {}), CORPUS, None, {}, answer)
    assert seen["x"][0] is given[0] and seen["x"][1] is given[1]
    np.testing.assert_allclose(answer.zbar, THETA)


def test_zbar_that_is_not_multiplied_is_an_array():
    """Whatever a story does with it; the engine learns that the response is not linear."""

    def bent(corpus, y=None):
        zbar = models.draw_words(corpus, jnp.asarray(THETA), jnp.asarray(BETA))
        found.append(
            [1 - zbar, zbar - 1, zbar**2, zbar / 2, 2 / (1 + zbar), -zbar, zbar[:, 0], zbar.sum(1), 3 * zbar, len(zbar)]
        )

    found, answer = [], ZbarHandler(jnp.asarray(ZBAR))
    run(Story(bent, {}), CORPUS, None, {}, answer)
    expected = [1 - ZBAR, ZBAR - 1, ZBAR**2, ZBAR / 2, 2 / (1 + ZBAR), -ZBAR, ZBAR[:, 0], ZBAR.sum(1), 3 * ZBAR, 4]
    for mine, theirs in zip(found[0], expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert not answer.linear and answer.coefficients == []
