"""SVI where its guide can be exact: evidence, importance ratios and draws of a conjugate story; guides by loops."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from by_loops import log_polya
from numpyro.infer import TraceMeanField_ELBO
from scipy import stats
from scipy.special import gammainc, polygamma, softmax

from topiczoo import corpora, models
from topiczoo.inference.marginal import svi_engine
from topiczoo.inference.marginal.guides import BOOST, Guide, PathwiseDirichlet, pathwise_log_gamma
from topiczoo.inference.marginal.svi_engine import Batches, _Fitting, learning_rates, svi
from topiczoo.inference.story.reading import read
from topiczoo.models import draw_bags

QUIET = {"progress_bar": False}
ALPHA, GAMMA, TERMS, NUMBER = np.array([1.0, 2.5]), 0.5, 5, 12


def conjugate(corpus, y=None):
    """Every site's posterior is of the guide's own family, and sites are independent given what is seen."""
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, GAMMA)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.asarray(ALPHA, jnp.float32)))
    mu, nu = numpyro.sample("mu", dist.Normal(0, 1)), numpyro.sample("nu", dist.Normal(0, 1))
    rate = numpyro.sample("rate", dist.LogNormal(0, 1))
    x = corpus.covariates
    with numpyro.plate("documents", corpus.num_documents):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.sample("of_effect", dist.Normal(effect, 0.5), obs=x["a"])
        numpyro.sample("of_mu", dist.Normal(mu, 2.0), obs=x["b"])
        numpyro.sample("of_nu", dist.Normal(nu, 2.0), obs=x["c"])
        numpyro.sample("of_rate", dist.LogNormal(jnp.log(rate), 0.7), obs=x["d"])
        y = numpyro.sample("y", dist.Categorical(pi), obs=y)
        draw_bags(corpus, jnp.asarray(y, int), beta)


class Conjugate:
    """The story's data, its exact posterior and its evidence."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.counts, self.y = rng.poisson(2.0, (NUMBER, TERMS)) + 1, (np.arange(NUMBER) % 3 == 0).astype(float)
        x = {name: rng.normal(1.0, 1.5, NUMBER) for name in "abc"} | {"d": rng.lognormal(0.5, 0.8, NUMBER)}
        self.corpus = corpora.Corpus.from_counts(self.counts, covariates=x)
        shares = np.eye(2)[self.y.astype(int)]
        self.dirichlet = {"pi": ALPHA + shares.sum(0), "beta": GAMMA + shares.T @ self.counts}
        self.normal = {"effect": self.known(x["a"][:, None], 0.5)}
        for name, values, scale in (("mu", x["b"], 2.0), ("nu", x["c"], 2.0), ("rate", np.log(x["d"]), 0.7)):
            self.normal[name] = self.known(values[None], scale)
        self.evidence = log_polya(shares.sum(0), ALPHA) + log_polya(shares.T @ self.counts, GAMMA).sum()
        self.evidence += stats.norm.logpdf(x["a"], 0, np.sqrt(1.25)).sum() - np.log(x["d"]).sum()
        for values, scale in ((x["b"], 2.0), (x["c"], 2.0), (np.log(x["d"]), 0.7)):
            covariance = np.ones((NUMBER, NUMBER)) + scale**2 * np.eye(NUMBER)
            self.evidence += stats.multivariate_normal(np.zeros(NUMBER), covariance).logpdf(values)

    @staticmethod
    def known(values, scale):
        """Mean and deviation given numbers [..., n] of this scale around a N(0, 1), in the rows' shape."""
        precision = 1 + values.shape[-1] / scale**2
        mean = values.sum(-1) / scale**2 / precision
        return np.squeeze(mean), np.squeeze(np.full(mean.shape, precision**-0.5))

    def parameters(self):
        found = {f"{name}: concentration": value for name, value in self.dirichlet.items()}
        for name, (mean, deviation) in self.normal.items():
            found |= {f"{name}: mean": mean, f"{name}: standard deviation": deviation}
        return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}


@pytest.fixture(scope="module")
def exact():
    return Conjugate()


@pytest.fixture(scope="module")
def fitting(exact):
    """SVI by slices of a third, whose guide stands at the exact posterior."""
    fitting = _Fitting(read(conjugate, exact.corpus, exact.y, {}), "mean_field", NUMBER // 3, 0.05, 10, seed=0)
    fitting.svi.get_params = lambda state: exact.parameters()
    fitting.state = None
    return fitting


def test_at_the_exact_posterior_the_ratio_is_one_number(exact, fitting):
    """log p/q of what is not of documents, and of each document, is the same at all draws. Its level: the evidence but for
    the density of documents' own sites, averaged over three draws; six standard errors, once in a billion times."""
    of_all, of_documents = fitting.importance_ratios(num_draws=60)
    assert of_all.shape == (60,) and of_documents.shape == (60, NUMBER)
    assert np.ptp(of_all) < 2e-3 and np.ptp(of_documents, axis=0).max() < 2e-3
    entropy = stats.norm(0, exact.normal["effect"][1]).entropy().sum()
    assert abs(of_all.mean() - (exact.evidence - entropy)) < 6 * np.sqrt(NUMBER / 2 / 3)
    assert np.ptp(of_documents.mean(0)) > 1


def test_the_bound_of_slices_at_the_exact_posterior_is_on_average_the_evidence(exact, fitting):
    """Over 600 keys: within five standard errors (once in two million times), which are below a quarter."""

    @jax.jit
    def losses(key, batch):
        def one(key):
            asked = key, exact.parameters(), fitting.svi.model, fitting.svi.guide
            return TraceMeanField_ELBO().loss(*asked, fitting.guide.initial, *batch)

        return jax.vmap(one)(jax.random.split(key, 600))

    found = [losses(jax.random.key(i), batch) for i, batch in enumerate(fitting.batches.in_order())]
    assert len(found) == fitting.scale == 3
    found = -np.mean(found, axis=0)
    error = found.std() / np.sqrt(600)
    assert error < 0.25 and abs(found.mean() - exact.evidence) < 5 * error


def test_draws_have_the_guides_laws_and_sites_are_drawn_apart(exact, fitting):
    """4000 draws; five standard errors are exceeded once in two million numbers, and there are about 60."""
    number, error = 4000, 5 / np.sqrt(4000)
    draws, means, snapshots, index = fitting.draw(number)
    assert not means and not snapshots and not len(index)
    assert {name: value.shape for name, value in draws.items()} == {
        "beta": (1, number, 2, TERMS), "pi": (1, number, 2), "mu": (1, number), "nu": (1, number), "rate": (1, number),
        "effect": (1, number, NUMBER),
    }  # fmt: skip
    for name, (mean, deviation) in exact.normal.items():
        values = np.log(draws[name][0]) if name == "rate" else draws[name][0].astype(float)
        assert (abs(values.mean(0) - mean) < error * deviation).all(), name
        assert (abs(values.std(0) / deviation - 1) < error).all(), name
    for name, concentration in exact.dirichlet.items():
        law = stats.beta(concentration, concentration.sum(-1, keepdims=True) - concentration)
        values = draws[name][0].astype(float)
        assert (abs(values.mean(0) - law.mean()) < error * law.std()).all(), name
        assert (abs(values.var(0) / law.var() - 1) < error * np.sqrt(law.stats("k") + 2)).all(), name
    apart = [draws[name][0].reshape(number, -1) for name in ("mu", "nu", "rate", "effect", "pi")]
    columns = np.column_stack([*apart[:3], apart[3][:, :3], apart[4][:, 0], draws["beta"][0, :, :, 0]])
    assert np.abs(np.corrcoef(columns.T) - np.eye(columns.shape[1])).max() < error


def test_large_sites_are_kept_as_means_and_fewer_draws(exact, fitting, monkeypatch):
    """Over the budget a site of documents is kept as its mean, others as their mean and fewer draws."""
    monkeypatch.setattr(svi_engine, "BUDGET", 2000 * 4 * 2 * TERMS)
    draws, means, snapshots, index = fitting.draw(4000)
    assert set(draws) == {"pi", "mu", "nu", "rate"} and set(snapshots) == {"beta"} and set(means) == {"beta", "effect"}
    assert snapshots["beta"].shape == (1, 2000, 2, TERMS)
    np.testing.assert_array_equal(index, np.arange(2000))
    mean, deviation = exact.normal["effect"]
    assert (abs(means["effect"][0] - mean) < 5 * deviation / np.sqrt(4000)).all()
    np.testing.assert_allclose(means["beta"][0], snapshots["beta"][0].mean(0), atol=0.02)


def test_the_mean_of_a_large_site_is_that_of_the_draws_that_are_not_kept():
    q, keys = PathwiseDirichlet(jnp.asarray([[0.5, 2.0, 1.0]])), jax.random.split(jax.random.key(0), 6)
    np.testing.assert_allclose(svi_engine._mean(q, keys), svi_engine._draws(q, keys).mean(0), rtol=1e-5)


def test_svi_comes_to_the_exact_posterior_by_slices(exact):
    """Adam ends within a few percent of the optimum of a noisy bound. Without the scale of a slice deviations would be half
    as wide again, and Dirichlets half as sure."""
    options = {"batch_size": 4, "num_steps": 800, "num_draws": 4000, "learning_rate": 0.05, "seed": 3, **QUIET}
    fit = svi(conjugate, exact.corpus, exact.y, **options)
    for name, (mean, deviation) in exact.normal.items():
        values = np.log(fit.draws[name][0]) if name == "rate" else fit.draws[name][0]
        assert (abs(values.mean(0) - mean) < 0.5 * deviation).all(), name
        np.testing.assert_allclose(values.std(0), deviation, rtol=0.2)
    np.testing.assert_allclose(fit.mean("pi"), exact.dirichlet["pi"] / exact.dirichlet["pi"].sum(), atol=0.05)
    losses = fit.info["losses"]
    assert losses.shape == (800,) and abs(-losses[-200:].mean() - exact.evidence) < 3
    assert fit.info["batch_size"] == 4 and fit.info["target"] == "exact" and fit.info["as_means"] == []


# batches


def test_batches_cover_the_corpus(exact):
    """Every document comes once in a shuffle; padding pairs count nothing; one shape serves; covariates and y go along."""
    batches = Batches(exact.corpus, exact.y, 4)
    dealt = list(itertools.islice(batches.random(np.random.default_rng(0)), 6))
    for three in (dealt[:3], dealt[3:]):
        np.testing.assert_array_equal(np.sort(np.concatenate([rows for _, _, rows in three])), np.arange(NUMBER))
    assert not np.array_equal(dealt[0][2], dealt[3][2]) and not np.array_equal(dealt[0][2], np.arange(4))
    in_order = list(Batches(exact.corpus, exact.y, 5).in_order())
    np.testing.assert_array_equal(np.concatenate([rows for _, _, rows in in_order]), np.arange(NUMBER))
    for part, response, rows in (*dealt, *in_order):
        table, rows = np.zeros((len(rows), TERMS)), np.asarray(rows)
        np.add.at(table, (np.asarray(part.pairs.document), np.asarray(part.pairs.term)), np.asarray(part.pairs.count))
        np.testing.assert_array_equal(table, exact.counts[rows])
        np.testing.assert_array_equal(part.lengths, exact.counts[rows].sum(1))
        np.testing.assert_allclose(part.covariates["a"], exact.corpus.covariates["a"].to_numpy()[rows], rtol=1e-6)
        np.testing.assert_array_equal(response, exact.y[rows])
    assert len({len(part.pairs.count) for part, *_ in dealt}) == 1
    everything = list(itertools.islice(Batches(exact.corpus, exact.y, NUMBER).random(np.random.default_rng(0)), 2))
    np.testing.assert_array_equal(everything[1][2], np.arange(NUMBER))


def test_the_learning_rate_rises_for_a_twentieth_and_falls_along_a_cosine():
    rate = learning_rates(0.4, 200)
    np.testing.assert_allclose([rate(0), rate(4), rate(9)], [0.04, 0.2, 0.4], rtol=1e-5)
    np.testing.assert_allclose([rate(105), rate(200), rate(300)], [0.4 * 0.505, 0.004, 0.004], rtol=1e-4)
    assert all(rate(step) > rate(step + 1) for step in range(10, 199))


def test_a_loss_that_is_not_a_number_stops():
    with pytest.raises(FloatingPointError, match="The loss is nan at step 2; lower learning_rate"):
        _Fitting._refuse_nan([2.0, 1.0, np.nan, np.nan])
    long = [1.0] * 60 + [np.inf]
    with pytest.raises(FloatingPointError, match="The loss is inf at step 60"):
        _Fitting._refuse_nan(long)


# guides


def test_a_network_reads_theta_from_the_words(exact):
    """gamma = alpha + sum_v count softmax(table_v + context), the context from what words say without it, by loops."""
    graph = read(models.lda, exact.corpus, None, {"num_topics": 3, "alpha": np.array([0.2, 0.5, 0.9])})
    guide, rng = Guide(graph, "amortised", 0), np.random.default_rng(1)
    prior, start = guide.initial["theta"]
    np.testing.assert_allclose(prior, [0.2, 0.5, 0.9], rtol=1e-6)
    topics = guide.initial["beta"]
    np.testing.assert_allclose(
        softmax(start["table"], 0), softmax(np.log(topics / topics.sum(1, keepdims=True)).T, 0), rtol=1e-4
    )
    weights = {part: rng.normal(0, 0.7, value.shape).astype(np.float32) for part, value in start.items()}
    fitting = _Fitting(graph, "amortised", 5, 0.05, 10, seed=0)
    fitting.guide = guide
    found = fitting._whole("theta", {f"theta: {part}": value for part, value in weights.items()}).concentration
    for d, row in enumerate(exact.counts):
        alone = row @ softmax(weights["table"], 1) / row.sum()
        hidden = np.tanh(alone @ weights["hidden"] + weights["hidden bias"])
        context = hidden @ weights["context"] + weights["context bias"]
        np.testing.assert_allclose(found[d], prior + row @ softmax(weights["table"] + context, 1), rtol=1e-4)


def test_where_guides_start(exact):
    """Documents' words shared almost evenly, the corpus' words half as in the corpus; other sites near 0."""
    graph = read(models.slda, exact.corpus, exact.counts[:, 0] - 3.0, {"num_topics": 3, "alpha": 0.2, "gamma": 0.1})
    start = Guide(graph, "mean_field", 0).initial
    lengths = exact.counts.sum(1)[:, None]
    shares = (start["theta"] - 0.2) / lengths
    assert shares.min() > 0.8 / 3 - 1e-4 and shares.max() < 1.2 / 3 + 1e-4 and np.ptp(shares) > 0.1
    beta, mix = start["beta"] - 0.1, exact.counts.sum(0) / exact.counts.sum()
    np.testing.assert_allclose(beta.sum(1), exact.counts.sum() / 3, rtol=1e-4)
    assert (beta / beta.sum(1, keepdims=True) > 0.49 * mix).all() and np.ptp(beta, axis=0).max() > 0.1
    assert start["eta"].shape == (3,) and start["sigma"].shape == () and np.abs(start["eta"]).max() < 0.6
    assert not np.array_equal(start["eta"], Guide(graph, "mean_field", 1).initial["eta"])


@pytest.mark.parametrize("shape", [0.05, 0.5, 3.0, 300.0])
def test_pathwise_gamma(shape):
    """E[log g] and its slope are digamma(a) and trigamma(a), and draws have their law (five standard errors, once in two
    million times); past the boost each draw moves with its quantile."""
    shapes, key = jnp.full(20_000, shape), jax.random.key(0)
    draws, slopes = jax.jit(lambda a: jax.jvp(lambda a: pathwise_log_gamma(key, a), (a,), (jnp.ones_like(a),)))(shapes)
    for found, expected in ((draws, polygamma(0, shape)), (slopes, polygamma(1, shape))):
        assert abs(found.mean() - expected) < 5 * found.std() / np.sqrt(len(shapes))
    assert abs(draws.var() / polygamma(1, shape) - 1) < 0.15

    # with the uniforms' part taken off, what is left is the slope of Gamma(b), b = a + 3, at a fixed quantile
    _, boost_key = jax.random.split(key)
    exponential = np.asarray(jax.random.exponential(boost_key, (BOOST, len(shapes))), float)
    offsets, b, step = shape + np.arange(BOOST)[:, None], shape + BOOST, 1e-3 * (shape + BOOST)
    ours = np.asarray(slopes) - (exponential / offsets**2).sum(0)
    g = np.exp(np.asarray(draws, float) + (exponential / offsets).sum(0))
    of_quantile = -(gammainc(b + step, g) - gammainc(b - step, g)) / (2 * step) / (g * stats.gamma(b).pdf(g))
    # float32 leaves few digits of a small slope beside a large one
    assert np.sqrt(np.mean((ours - of_quantile) ** 2)) < 0.03 * of_quantile.std() + 1e-6 * np.abs(slopes).max()


def test_dirichlet_draws_of_the_guide_have_their_law():
    law = PathwiseDirichlet(jnp.array([[0.3, 2.0, 4.0], [1e-6, 1e-6, 1e-6]]))
    draws = np.asarray(jax.jit(lambda key: law.sample(key, (20_000,)))(jax.random.key(0)), float)
    mean, total = np.array([0.3, 2.0, 4.0]) / 6.3, 6.3
    spread = np.sqrt(mean * (1 - mean) / (total + 1))
    assert (abs(draws[:, 0].mean(0) - mean) < 5 * spread / np.sqrt(20_000)).all()
    np.testing.assert_allclose(draws[:, 0].std(0), spread, rtol=0.05)
    assert (draws > 0).all()
    np.testing.assert_allclose(draws[:, 0].sum(-1), 1, rtol=1e-5)


# refusals


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"guide": "full"}, ValueError, "guide is 'full'; give one of 'mean_field', 'amortised'"),
        ({"batch_size": 13}, ValueError, "batch_size is 13, more than the 12 documents"),
        ({"num_steps": 0}, ValueError, "num_steps is 0"),
        ({"learning_rate": -1}, ValueError, "learning_rate is -1; give a positive number"),
        ({"alhpa": 1}, TypeError, "'alhpa' is no argument of the story 'mixture'"),
        ({"guide": "amortised"}, ValueError, "'mixture' gives draw_words no theta"),
    ],
)
def test_svi_refuses(exact, options, error, words):
    with pytest.raises(error, match=words):
        svi(models.mixture, exact.corpus, num_topics=3, **options, **QUIET)
