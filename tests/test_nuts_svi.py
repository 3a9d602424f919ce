"""NUTS and SVI: against sums over every assignment of topics, and on simulated documents."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import TraceMeanField_ELBO
from scipy.special import gammainc, gammaln, polygamma
from scipy.stats import gamma

from topiczoo import corpora, models
from topiczoo.inference import svi_engine as svi_module
from topiczoo.inference.guides import BOOST, pathwise_log_gamma
from topiczoo.inference.nuts_engine import nuts
from topiczoo.inference.reading import read
from topiczoo.inference.svi_engine import Batches, _Fitting, svi
from topiczoo.models import draw_words

TINY = corpora.Corpus.from_counts([[2, 1, 0], [0, 1, 1], [1, 0, 1]])  # 7 tokens
Y = np.array([0.5, -1.0, 1.5])
QUIET = {"progress_bar": False}


def student(corpus, y=None, *, num_topics=2):
    """slda, its normal response replaced by a Student-t."""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(num_topics)))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.StudentT(4, zbar @ eta, sigma), obs=y)


def log_polya(counts, prior):
    """log of the Dirichlet-multinomial density of each row's sequence."""
    prior = np.broadcast_to(prior, counts.shape)
    ratio = gammaln(prior.sum(-1)) - gammaln((prior + counts).sum(-1))
    return ratio + (gammaln(prior + counts) - gammaln(prior)).sum(-1)


def mean_square(counts, prior):
    """E[sum_i x_i^2] of each row's Dirichlet(prior + counts); unlike x itself it knows no topic labels."""
    a = prior + counts
    total = a.sum(-1)
    return (a * (a + 1)).sum(-1) / (total * (total + 1))


def tokens_by_topic(corpus, z, num_topics=2):
    """Counts [documents, topics] and [topics, terms]."""
    document, term = corpus.tokens()
    of_documents, of_terms = np.zeros((len(corpus), num_topics)), np.zeros((num_topics, corpus.num_terms))
    np.add.at(of_documents, (document, z), 1)
    np.add.at(of_terms, (z, term), 1)
    return of_documents, of_terms


def assert_agrees(draws, exact, slack=0.0):
    """Within four Monte Carlo standard errors, by the effective sample size."""
    error = draws.std() / np.sqrt(effective_sample_size(draws))
    assert abs(draws.mean() - exact) < 4 * error + slack, (draws.mean(), exact, error)
    assert error < 0.1 * draws.std(), "too few draws to tell"


def test_nuts_on_lda_is_exact():
    weights, squares = [], []
    for z in itertools.product(range(2), repeat=TINY.num_tokens):
        of_documents, of_terms = tokens_by_topic(TINY, z)
        weights.append(log_polya(of_documents, 1.0).sum() + log_polya(of_terms, 0.5).sum())
        squares.append([mean_square(of_documents, 1.0)[0], mean_square(of_terms, 0.5).sum()])
    weights = np.exp(weights - np.max(weights))
    theta, beta = weights @ np.array(squares) / weights.sum()
    fit = nuts(models.lda, TINY, num_topics=2, alpha=1.0, gamma=0.5, num_samples=1000, **QUIET)
    assert_agrees((fit.draws["theta"][:, :, 0] ** 2).sum(-1), theta)
    assert_agrees((fit.draws["beta"] ** 2).sum((-1, -2)), beta)
    assert fit.info["target"] == "exact"
    assert fit.statistics["diverging"].shape == (2, 1000)


def test_nuts_on_the_mixture_is_exact():
    weights, squares = [], []
    counts = TINY.counts.toarray()
    for z in itertools.product(range(2), repeat=len(TINY)):
        indicator = np.eye(2)[list(z)]
        weights.append(log_polya(indicator.sum(0), 2.0) + log_polya(indicator.T @ counts, 1.0).sum())
        squares.append([mean_square(indicator.sum(0), 2.0), mean_square(indicator.T @ counts, 1.0).sum()])
    weights = np.exp(weights - np.max(weights))
    theta, beta = weights @ np.array(squares) / weights.sum()
    fit = nuts(models.mixture, TINY, num_topics=2, alpha=2.0, gamma=1.0, num_samples=1000, **QUIET)
    assert_agrees((fit.draws["theta"] ** 2).sum(-1), theta)
    assert_agrees((fit.draws["beta"] ** 2).sum((-1, -2)), beta)
    assert "z" not in fit.draws


def exact_student():
    """E[sigma] and E[sum eta^2] of the student story: theta and beta integrated out, z summed, eta and sigma on a grid."""
    eta, sigma = np.linspace(-4, 4, 61), np.linspace(0.02, 4, 80)
    first, second, scale = np.meshgrid(eta, eta, sigma, indexing="ij")
    prior = np.exp(-(first**2 + second**2 + scale**2) / 2)
    share = np.array([2, 3])  # documents have two or three tokens
    terms = {
        (d, n, k): (1 + (y - (k * first + (n - k) * second) / n) ** 2 / (4 * scale**2)) ** -2.5 / scale
        for d, y in enumerate(Y) for n in share for k in range(n + 1)
    }  # fmt: skip
    posterior = 0.0
    for z in itertools.product(range(2), repeat=TINY.num_tokens):
        of_documents, of_terms = tokens_by_topic(TINY, z)
        weight = np.exp(log_polya(of_documents, 1.0).sum() + log_polya(of_terms, 1.0).sum())
        keys = [(d, int(row.sum()), int(row[0])) for d, row in enumerate(of_documents)]
        posterior = posterior + weight * prior * terms[keys[0]] * terms[keys[1]] * terms[keys[2]]
    posterior = posterior / posterior.sum()
    return (posterior * scale).sum(), (posterior * (first**2 + second**2)).sum()


def test_nuts_on_an_edited_response_is_close():
    """A Student-t that no engine knows. On documents of two or three words sigma points lose 3% of sigma and 1% of eta^2;
    Jensen's average would lose 21% and 22%."""
    sigma, square = exact_student()
    fit = nuts(student, TINY, Y, num_samples=1000, num_warmup=500, **QUIET)
    assert_agrees(fit.draws["sigma"], sigma, slack=0.04 * sigma)
    assert_agrees((fit.draws["eta"] ** 2).sum(-1), square, slack=0.04 * square)
    assert fit.info["target"] == "sigma points, density averaged"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_samples": 0}, "num_samples is 0; give a whole number of at least 1"),
        ({"thinning": 3}, "thinning is 3, which does not divide num_samples 500"),
        ({"num_topics": 0}, "num_topics is 0"),
    ],
)
def test_nuts_refuses(options, words):
    with pytest.raises(ValueError, match=words):
        nuts(models.lda, TINY, **options, **QUIET)


@pytest.fixture(scope="module")
def simulated():
    """Three topics far apart, a response, every fifth label missing."""
    rng = np.random.default_rng(0)
    beta = np.repeat(np.eye(3), 4, axis=1) * 0.22 + 0.01
    theta = rng.dirichlet(np.full(3, 0.3), 60)
    counts = np.array([rng.multinomial(40, row) for row in theta @ (beta / beta.sum(1, keepdims=True))])
    y = theta @ np.array([-2.0, 0.0, 2.0]) + 0.2 * rng.normal(size=60)
    y[::5] = np.nan
    return corpora.Corpus.from_counts(counts), y, beta / beta.sum(1, keepdims=True), theta


@pytest.mark.parametrize(("guide", "batch_size", "num_steps"), [("mean_field", None, 600), ("amortised", 20, 600)])
def test_svi_finds_topics(simulated, guide, batch_size, num_steps):
    corpus, y, beta, theta = simulated
    fit = svi(
        models.slda, corpus, y, num_topics=3, alpha=0.3, gamma=0.1, guide=guide, batch_size=batch_size,
        num_steps=num_steps, num_draws=50, **QUIET,
    )  # fmt: skip
    losses = fit.info["losses"]
    assert losses.shape == (num_steps,) and np.isfinite(losses).all()
    assert losses[-50:].mean() < losses[:5].mean() - 500
    eta = fit.draws["eta"][0].mean(0)
    order = np.argsort(eta)
    np.testing.assert_allclose(eta[order], [-2, 0, 2], atol=0.5)
    np.testing.assert_allclose(fit.draws["beta"][0].mean(0)[order], beta, atol=0.06)
    found = fit.draws["theta"][0].mean(0)[:, order]
    assert found.shape == (60, 3) and np.abs(found - theta).mean() < 0.08
    assert fit.draws["sigma"].shape == (1, 50)


def test_svi_repeats_itself_and_runs_edited_stories(simulated):
    corpus, y, *_ = simulated
    options = {"num_topics": 3, "num_steps": 100, "batch_size": 20, "num_draws": 20, **QUIET}
    fits = [svi(student, corpus, y, seed=seed, **options) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(fits[0].info["losses"], fits[1].info["losses"])
    for name in fits[0].draws:
        np.testing.assert_array_equal(fits[0].draws[name], fits[1].draws[name])
    assert (fits[0].info["losses"] != fits[2].info["losses"]).all()


def test_svi_on_the_mixture(simulated):
    fit = svi(models.mixture, simulated[0], num_topics=3, gamma=0.5, num_steps=300, num_draws=20, **QUIET)
    assert fit.info["losses"][-20:].mean() < fit.info["losses"][0] - 200
    assert fit.info["target"] == "exact"
    assert {name: value.shape for name, value in fit.draws.items()} == {
        "theta": (1, 20, 3),
        "beta": (1, 20, 3, 12),
    }


def test_minibatches_estimate_the_bound_without_bias(simulated):
    """The mean over the slices of a corpus is the bound of the corpus.

    Global sites are drawn alike for the same key; theta's guide is made so narrow that its draws do not differ.
    """
    corpus, y, *_ = simulated
    reading = read(models.slda, corpus, y, {"num_topics": 3, "alpha": 0.3, "gamma": 0.1})
    losses = []
    for size in (60, 20):
        fitting = _Fitting(reading, "mean_field", size, 0.05, 10, seed=0)
        parameters = {}
        for name, start in fitting.guide.initial.items():
            if name in ("beta", "theta"):
                parameters[f"{name}: concentration"] = jnp.asarray(start * (1e5 if name == "theta" else 1.0))
            else:
                parameters |= {
                    f"{name}: mean": jnp.asarray(start),
                    f"{name}: deviation": jnp.full(start.shape, 0.1),
                }
        loss = jax.jit(
            lambda *batch: TraceMeanField_ELBO().loss(
                jax.random.key(0), parameters, fitting.svi.model, fitting.svi.guide, *batch
            )
        )
        losses.append(np.mean([loss(*batch) for batch in fitting.batches.in_order()]))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_batches_cover_the_corpus(simulated):
    """Every document comes once in a shuffle; padding pairs count nothing; one shape serves."""
    corpus, y, *_ = simulated
    batches = Batches(corpus, y, 20)
    dealt = list(itertools.islice(batches.random(np.random.default_rng(0)), 3))
    np.testing.assert_array_equal(np.sort(np.concatenate([rows for _, _, rows in dealt])), np.arange(60))
    for part, response, rows in dealt:
        table = np.zeros((20, corpus.num_terms))
        np.add.at(
            table,
            (np.asarray(part.pairs.document), np.asarray(part.pairs.term)),
            np.asarray(part.pairs.count),
        )
        np.testing.assert_array_equal(table, corpus.counts[np.asarray(rows)].toarray())
        np.testing.assert_allclose(response, y[np.asarray(rows)], rtol=1e-6)
        assert len(part.pairs.count) in (batches.usual, batches.most)


def test_large_sites_are_kept_as_means(simulated, monkeypatch):
    """Sites over the budget: theta as its mean, beta as its mean and fewer draws."""
    monkeypatch.setattr(svi_module, "BUDGET", 12 * 36 * 4)
    reading = read(models.lda, simulated[0], None, {"num_topics": 3})
    fitting = _Fitting(reading, "mean_field", 60, 0.05, 10, seed=0)
    fitting.state = jax.jit(fitting.svi.init)(jax.random.key(0), *next(fitting.batches.in_order()))
    draws, means, snapshots, index = fitting.draw(100)
    assert not draws and means["theta"].shape == (1, 60, 3) and means["beta"].shape == (1, 3, 12)
    np.testing.assert_allclose(means["theta"].sum(-1), 1, rtol=1e-4)
    assert snapshots.keys() == {"beta"} and snapshots["beta"].shape == (1, 12, 3, 12) and len(index) == 12


def test_a_loss_that_is_not_a_number_stops():
    with pytest.raises(FloatingPointError, match="The loss is nan at step 2; lower learning_rate"):
        _Fitting._refuse_nan([2.0, 1.0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"guide": "full"}, ValueError, "guide is 'full'; give one of 'mean_field', 'amortised'"),
        ({"batch_size": 61}, ValueError, "batch_size is 61, more than the 60 documents"),
        ({"num_steps": 0}, ValueError, "num_steps is 0"),
        ({"learning_rate": -1}, ValueError, "learning_rate is -1; give a positive number"),
        ({"alhpa": 1}, TypeError, "'alhpa' is no argument of the story 'slda'"),
    ],
)
def test_svi_refuses(simulated, options, error, words):
    corpus, y, *_ = simulated
    with pytest.raises(error, match=words):
        svi(models.slda, corpus, y, **{"num_topics": 3, **options}, **QUIET)


def test_amortised_guide_needs_proportions(simulated):
    with pytest.raises(ValueError, match="'mixture' gives draw_words no theta"):
        svi(models.mixture, simulated[0], num_topics=3, guide="amortised", **QUIET)


@pytest.mark.parametrize("shape", [0.05, 0.5, 3.0, 300.0])
def test_pathwise_gamma(shape):
    """E[log g] has the slope trigamma(a); and past the boost each draw moves with its quantile."""
    shapes, key = jnp.full(20_000, shape), jax.random.key(0)
    slopes = jax.jit(jax.grad(lambda a: pathwise_log_gamma(key, a).sum()))(shapes)
    assert abs(slopes.mean() - polygamma(1, shape)) < 4 * slopes.std() / np.sqrt(len(shapes))

    # with the uniforms' part taken off, what is left is the slope of Gamma(b), b = a + 3, at a fixed quantile
    _, boost_key = jax.random.split(key)
    exponential = np.asarray(jax.random.exponential(boost_key, (BOOST, len(shapes))), float)
    offsets, b, step = shape + np.arange(BOOST)[:, None], shape + BOOST, 1e-3 * (shape + BOOST)
    ours = np.asarray(slopes) - (exponential / offsets**2).sum(0)
    g = np.exp(np.asarray(pathwise_log_gamma(key, shapes), float) + (exponential / offsets).sum(0))
    exact = -(gammainc(b + step, g) - gammainc(b - step, g)) / (2 * step) / (g * gamma(b).pdf(g))
    # float32 leaves few digits of a small slope beside a large one
    assert np.sqrt(np.mean((ours - exact) ** 2)) < 0.03 * exact.std() + 1e-6 * np.abs(slopes).max()
