"""Predictions at known draws against sums over all assignments of topics.

The fit is made by hand: two chains of two draws, each with topics, coefficients and a scale of its own, so that a mean of
draws in the place of the draws, or one chain in the place of another, shows. Documents are copies of a few short ones:
independent draws of the same law, at every posterior draw.

Limits: a mean over copies may be as far from what it should be as Bernstein's inequality lets it with probability 1e-7, by
the exact variance and reach of a single copy; a test has some 60 of them. Other limits are said where they are.
"""

from __future__ import annotations

import copy
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from fits import fit_of
from scipy import stats
from scipy.special import digamma, gammaln, softmax

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics.scoring.predictive_scores import scores
from topiczoo.inference.kernels.assignments import Assignments
from topiczoo.inference.predictive import fold_in
from topiczoo.inference.predictive.expected_responses import expected_responses
from topiczoo.inference.predictive.fold_in import FoldIn
from topiczoo.inference.predictive.predicting import plug_in_topics
from topiczoo.inference.predictive.selection import error
from topiczoo.models import draw_words

RNG = np.random.default_rng(7)
K, ALPHA = 3, 0.4
KINDS = np.array([[2, 0, 1, 0, 3, 1], [0, 1, 0, 2, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 0]])
COPIES = 400
WHICH = RNG.permutation(np.repeat(np.arange(len(KINDS)), COPIES))
CORPUS = Corpus.from_counts(KINDS[WHICH])
POINTS = [(0, 0), (0, 1), (1, 0), (1, 1)]  # chain and draw
DRAWS = {
    "beta": RNG.dirichlet(np.full(6, 0.7), (2, 2, K)).astype(np.float32),
    "eta": np.array([[[-1.0, 0.3, 2.0], [3.0, -2.0, 0.5]], [[0.0, 1.0, -1.0], [2.0, 2.5, -3.0]]], np.float32),
    "sigma": np.array([[0.3, 0.6], [1.0, 0.2]], np.float32),
}
EXACTLY = {"num_burn": 20, "seed": 3}


def at(name, point):
    return DRAWS[name][point].astype(float)


class Law:
    """The exact law of the topics of a document given its words, at one posterior draw."""

    def __init__(self, row, point):
        self.terms = np.repeat(np.arange(6), row)
        self.z = np.array(list(itertools.product(range(K), repeat=len(self.terms))))
        self.counts = np.eye(K)[self.z].sum(1)
        self.zbar = self.counts / len(self.terms)
        logs = gammaln(self.counts + ALPHA).sum(1) + np.log(at("beta", point))[self.z, self.terms].sum(1)
        self.p = softmax(logs)

    def moments(self, values):
        """Mean, variance and reach of functions of the assignment, [assignment, ...]."""
        mean = np.tensordot(self.p, values, 1)
        return mean, np.tensordot(self.p, (values - mean) ** 2, 1), np.abs(values - mean).max(0)


def assert_means(found, mean, variance, reach):
    """Means over copies [copy, ...] by Bernstein's inequality: log(2 / 1e-7) is 16.8."""
    limit = np.sqrt(2 * 16.8 * variance / len(found)) + 2 * 16.8 / 3 * reach / len(found) + 1e-5
    gap = np.abs(np.mean(found, axis=0, dtype=float) - mean)
    assert (gap <= limit).all(), (gap, limit)


LAWS = {(kind, point): Law(row, point) for kind, row in enumerate(KINDS) for point in POINTS}


@pytest.fixture(scope="module")
def fit():
    y = np.where(np.arange(len(CORPUS)) % 7 == 0, np.nan, WHICH).astype(np.float32)
    return fit_of(models.slda, DRAWS, CORPUS, y, num_topics=K, alpha=ALPHA)


@pytest.fixture(scope="module")
def prediction(fit):
    return fit.predict(CORPUS, **EXACTLY)


def test_topics_and_coefficients_are_those_of_the_draw(prediction):
    """E[y | z] = zbar @ eta has the law of drawn topics and the coefficients of its own draw, not their means."""
    assert prediction.expected.shape == (2, 2, len(CORPUS)) and prediction.draws.shape == (200, len(CORPUS))
    for (kind, point), law in LAWS.items():
        found = prediction.expected[point][WHICH == kind]
        values = law.zbar @ at("eta", point)
        assert_means(found, *law.moments(values))
        assert_means(found**2, *law.moments(values**2))
    np.testing.assert_allclose(prediction.mean, prediction.expected.mean((0, 1)), rtol=1e-5)


def test_noise_is_the_draws_own_and_new_for_every_response(prediction):
    """Draws stand chain after chain, 50 a posterior draw; their noise has the scale of that draw.

    80,000 numbers a point have a mean of 0 to 0.004 and a variance of 1 to 0.005; means over 50 responses at one draw, or
    over 1600 documents, have a 50th and a 1600th of it, known to 0.035 and 0.1: limits are six deviations and more.
    """
    drawn = prediction.draws.reshape(2, 2, 50, -1)
    noise = (drawn - prediction.expected[:, :, None]) / DRAWS["sigma"][:, :, None, None]
    assert np.abs(noise.mean((2, 3))).max() < 0.035 and np.abs((noise**2).mean((2, 3)) - 1).max() < 0.05
    assert np.abs((noise.mean(2) ** 2).mean(-1) * 50 - 1).max() < 0.25
    assert np.abs((noise.mean(3) ** 2).mean() * 1600 - 1) < 0.7
    flat = noise.reshape(200, -1)
    assert np.abs(np.corrcoef(flat) - np.eye(200)).max() < 0.18  # 1600 documents: deviation 0.025
    low, high = np.quantile(prediction.draws, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(prediction.interval(), np.stack([low, high], -1))
    frame = prediction.frame(0.5)
    np.testing.assert_allclose(frame["low"], np.quantile(prediction.draws, 0.25, axis=0))
    np.testing.assert_allclose(frame["high"], np.quantile(prediction.draws, 0.75, axis=0))
    np.testing.assert_array_equal(frame["mean"], prediction.mean)
    assert list(frame.index) == list(CORPUS.names)


def assert_moved_apart(values):
    """Deviations [chain, draw, document] of any two points and of copies are not correlated.

    1600 documents: a correlation of points has the deviation 0.025. The mean over a kind's 400 copies has a 400th of their
    variance: over 16 kinds and points the ratio is 1 with a deviation of 0.35.
    """
    scaled = np.stack([
        (values[point] - [law.moments(law.zbar @ at("eta", point))[0] for law in laws])
        / np.sqrt([law.moments(law.zbar @ at("eta", point))[1] for law in laws])
        for point in POINTS
        for laws in [[LAWS[kind, point] for kind in WHICH]]
    ])  # fmt: skip
    assert np.abs(np.corrcoef(scaled) - np.eye(4)).max() < 0.15
    means = np.array([[part[WHICH == kind].mean() for kind in range(len(KINDS))] for part in scaled])
    assert (means**2).mean() * COPIES < 4


def test_chains_draws_and_documents_have_random_numbers_of_their_own(prediction, fit):
    assert_moved_apart(prediction.expected)
    again = fit.predict(CORPUS, **EXACTLY)
    np.testing.assert_array_equal(again.draws, prediction.draws)
    other = fit.predict(CORPUS, **{**EXACTLY, "seed": 4})
    gap = (other.expected - prediction.expected)[:, :, WHICH == 0]
    assert np.abs(np.corrcoef(other.expected[0, 0], prediction.expected[0, 0])[0, 1]) < 0.95 and (gap != 0).mean() > 0.5


def test_proportions_are_expected_given_the_words(fit):
    """Of the first chain, over both of its draws."""
    found = fit.transform(CORPUS, **EXACTLY)
    for kind in range(len(KINDS)):
        laws = [LAWS[kind, (0, draw)] for draw in (0, 1)]
        parts = [law.moments((law.counts + ALPHA) / (len(law.terms) + K * ALPHA)) for law in laws]
        mean, variance, reach = (sum(part) for part in zip(*parts, strict=True))
        assert_means(found[WHICH == kind], mean / 2, variance / 4, reach / 2)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)


def test_tokens_have_their_exact_topics(fit):
    found = inference.token_topics(fit, CORPUS, chain=1, num_burn=20, seed=1)
    assert found.topics.shape == (2, CORPUS.num_tokens) and found.num_topics == K
    for kind, row in enumerate(KINDS):
        tokens = np.isin(found.document, np.flatnonzero(WHICH == kind))
        for draw in (0, 1):
            law = LAWS[kind, (1, draw)]
            topics = found.topics[draw, tokens].reshape(COPIES, row.sum())
            np.testing.assert_array_equal(found.term[tokens].reshape(COPIES, -1)[5], law.terms)
            assert_means(np.eye(K)[topics], *law.moments(np.eye(K)[law.z]))


def test_densities_of_responses_are_averaged_over_topics(fit):
    """The mean over copies of exp(log-likelihood) is p(y | w, draw), with four sweeps averaged in each."""
    y = np.array([0.5, -0.4, 1.0, np.nan])
    logs = inference.log_likelihood(fit, CORPUS, y[WHICH], inner=4, num_burn=20, seed=2)
    assert logs.shape == (2, 2, len(CORPUS)) and np.isnan(logs[:, :, WHICH == 3]).all()
    for (kind, point), law in LAWS.items():
        if kind < 3:
            density = stats.norm.pdf(y[kind], law.zbar @ at("eta", point), at("sigma", point))
            assert_means(np.exp(logs[point][WHICH == kind]), *law.moments(density))  # averages vary less still


def centre_of(beta, alpha, terms):
    """E[n_k] to zeroth order: every token in proportion to beta (n + alpha), repeated until it rests."""
    counts = np.full(K, len(terms) / K)
    for _ in range(2000):
        weight = beta[:, terms] * (counts + alpha)[:, None]
        counts = (weight / weight.sum(0)).sum(1)
    return counts


def test_expectations_without_noise_are_those_of_expected_counts(fit):
    found = expected_responses(fit, CORPUS, seed=5)["y"]
    assert found.values.shape == (2, 2, len(CORPUS), 1) and not found.of_classes
    for (kind, point), law in LAWS.items():
        expected = centre_of(at("beta", point), ALPHA, law.terms) @ at("eta", point) / len(law.terms)
        # ten steps of the engine, which need not have arrived altogether
        np.testing.assert_allclose(found.values[point][WHICH == kind, 0], expected, atol=0.03)
    # over four draws: the variance of their means, and three quarters of the mean variance of their noise
    means = found.values[..., 0].reshape(4, -1)
    exact = means.var(0) + 0.75 * np.mean(DRAWS["sigma"] ** 2)
    for kind in range(len(KINDS)):
        own = WHICH == kind
        np.testing.assert_allclose(found.variance[own, 0].mean(), exact[own].mean(), rtol=0.25)  # known to 0.04


def soft_law(law, start):
    """p(z) of a soft sweep: tokens are taken in one by one, those to come present by their share of expected counts."""
    p = np.ones(len(law.z))
    for place, term in enumerate(law.terms):
        taken = np.eye(K)[law.z[:, :place]].sum(1)
        left = 1 - (place + 1) / len(law.terms)
        weight = at("beta", (0, 0))[:, term] * (left * start + taken + ALPHA)
        p *= weight[np.arange(len(p)), law.z[:, place]] / weight.sum(1)
    return p


def swept_law(law, p):
    """p(z) after an exact sweep, the first token first, from any to any assignment."""
    to = np.ones((len(p), len(p)))
    for place, term in enumerate(law.terms):
        before, after = np.eye(K)[law.z[:, :place]].sum(1), np.eye(K)[law.z[:, place + 1 :]].sum(1)
        weight = at("beta", (0, 0))[:, term] * (before[None] + after[:, None] + ALPHA)
        weight /= weight.sum(-1, keepdims=True)
        to *= weight[:, np.arange(len(p)), law.z[:, place]]
    return p @ to


@pytest.mark.parametrize("exact", [0, 1])
def test_a_soft_sweep_has_the_law_of_its_steps(fit, exact):
    """Alone, and with an exact sweep behind it that must have random numbers of its own: 6400 copies each."""
    fold, point = FoldIn(fit, CORPUS, chains=[0]), (0, 0)
    values = {name: jnp.asarray(draw[point]) for name, draw in DRAWS.items()}
    centre = np.asarray(fold._centre(0))
    counts = jax.jit(lambda key: fold.topics(fold.corpus, key, jnp.asarray(centre), values, exact).document_topic)
    drawn = np.concatenate([counts(jax.random.key(seed)) for seed in range(16)])
    which, mean_beta = np.tile(WHICH, 16), DRAWS["beta"][0].astype(float).mean(0)
    for kind in (1, 3) if exact else range(len(KINDS)):
        law, start = copy.copy(LAWS[kind, point]), centre[WHICH == kind][0].astype(float)
        np.testing.assert_allclose(start, centre_of(mean_beta, ALPHA, law.terms), atol=0.2)
        law.p = soft_law(law, start)
        np.testing.assert_allclose(law.p.sum(), 1)
        if exact:
            law.p = swept_law(law, law.p)
        own = drawn[which == kind]
        assert_means(own, *law.moments(law.counts))
        assert_means(own[:, :, None] * own[:, None], *law.moments(law.counts[:, :, None] * law.counts[:, None]))


def plug_in(beta, terms):
    """E[zbar] under q: gamma = alpha + sum phi and phi in proportion to beta exp(digamma(gamma)), in NumPy."""
    gamma = np.full(K, ALPHA + len(terms) / K)
    for _ in range(200):
        phi = beta[:, terms] * np.exp(digamma(gamma))[:, None]
        phi /= phi.sum(0)
        gamma = ALPHA + phi.sum(1)
    return phi.mean(1)


def test_the_plug_in_rule_is_that_of_blei_and_mcauliffe(fit):
    """Each chain at its means; draws have the mean scale of their chain, 100 responses each."""
    found = fit.predict(CORPUS, rule="plug-in", seed=2)
    means = {name: value.astype(float).mean(1) for name, value in DRAWS.items()}
    exact = np.array([
        [plug_in(means["beta"][chain], LAWS[kind, (0, 0)].terms) @ means["eta"][chain] for kind in range(len(KINDS))]
        for chain in (0, 1)
    ])  # fmt: skip
    np.testing.assert_allclose(found.expected[:, 0], exact[:, WHICH], atol=0.03)
    np.testing.assert_allclose(found.mean, exact.mean(0)[WHICH], atol=0.03)
    noise = found.draws.reshape(2, 100, -1) - found.expected
    # 160,000 numbers a chain: the deviation is known to 0.2%
    np.testing.assert_allclose(noise.std((1, 2)), means["sigma"], rtol=0.02)
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.03


def test_mean_topics_of_a_document_without_known_words_are_those_that_its_prior_expects(monkeypatch):
    """Drawn, expected and plugged in: a document of zeros would have the response of no topic at all."""
    corpus = Corpus.from_counts([[1, 2, 0], [0, 0, 0], [0, 0, 4]], empty="keep")
    draws = {"beta": np.full((1, 2, 2, 3), 1 / 3, np.float32), "eta": np.zeros((1, 2, 2), np.float32)}
    fit = fit_of(models.slda, {**draws, "sigma": np.ones((1, 2), np.float32)}, corpus[[0, 2]], [0.0, 1.0], num_topics=2)
    fold, theta = FoldIn(fit, corpus), jnp.asarray([[0.5, 0.5], [0.3, 0.7], [0.9, 0.1]])
    counts = jnp.asarray([[1.0, 2.0], [0.0, 0.0], [4.0, 0.0]])
    expected = [[1 / 3, 2 / 3], [0.3, 0.7], [1.0, 0.0]]
    np.testing.assert_allclose(fold.zbar(fold.corpus, Assignments(None, counts), theta), expected, rtol=1e-6)
    monkeypatch.setattr(FoldIn, "expected_counts", lambda *_: counts)
    monkeypatch.setattr(FoldIn, "theta", lambda *_: theta)
    zbar, values = fold.expected_topics(fold.corpus, {})
    np.testing.assert_allclose(zbar, expected, rtol=1e-6)
    np.testing.assert_array_equal(values["theta"], theta)
    monkeypatch.setattr(
        FoldIn, "compiled", lambda *_: lambda *_: (jnp.full((2, 3), 1 / 3), jnp.asarray([0.6, 1.4]), None)
    )
    plugged, zbar = plug_in_topics(fold, {})
    np.testing.assert_allclose(np.asarray([plugged[1], zbar[1]]), [[0.3, 0.7]] * 2, rtol=1e-5)
    np.testing.assert_allclose(zbar.sum(1), 1, rtol=1e-5)


def test_documents_lie_in_every_chain_where_its_own_means_say(monkeypatch):
    fit = fit_of(models.lda, {"beta": np.full((2, 2, 2, 6), 1 / 6, np.float32)}, CORPUS[:2], num_topics=2)
    fold, asked = FoldIn(fit, CORPUS[:2]), []
    monkeypatch.setattr(FoldIn, "means", lambda self, chain: asked.append(chain) or {})
    monkeypatch.setattr(FoldIn, "compiled", lambda *_: lambda *_: None)
    monkeypatch.setattr(fold_in, "by_threads", lambda *_: None)
    for chain in (0, 1):
        fold._centre(chain)
    assert asked == [0, 1]


def test_running_means_of_an_engine_come_before_means_of_draws(fit):
    other = copy.copy(fit)
    other.means = {"beta": np.flip(DRAWS["beta"].mean(1), -1)}
    for chain in (0, 1):
        found = FoldIn(other, CORPUS).means(chain)
        np.testing.assert_array_equal(found["beta"], other.means["beta"][chain])
        np.testing.assert_allclose(found["eta"], DRAWS["eta"][chain].mean(0), rtol=1e-6)
        np.testing.assert_allclose(found["sigma"], DRAWS["sigma"][chain].mean(), rtol=1e-6)


def questions(corpus, y=None, *, num_topics=K):
    """Two yes-or-no responses a document, side by side."""
    beta = stories.topics(corpus, num_topics)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics, 2]).to_event(2))
    logits = draw_words(corpus, stories.proportions(corpus, num_topics, ALPHA), beta) @ eta
    with numpyro.plate("documents", corpus.num_documents, dim=-2), numpyro.plate("questions", 2, dim=-1):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def test_several_yes_or_no_responses_keep_their_documents():
    few = CORPUS[:7]
    eta = np.stack([DRAWS["eta"], 1 - DRAWS["eta"]], -1)
    fit = fit_of(questions, {"beta": DRAWS["beta"], "eta": eta}, few, np.eye(7, 2), num_topics=K)
    found = fit.predict(few)
    assert found.mean.shape == (7, 2) and found.probabilities.shape == (7, 2, 2) and found.draws.shape == (200, 7, 2)
    np.testing.assert_allclose(found.probabilities[..., 1], found.mean, rtol=1e-4)
    np.testing.assert_array_equal(found.code, (found.mean > 0.5).astype(int))
    one = found.take(np.array([4, 1]))
    np.testing.assert_array_equal(one.probabilities, found.probabilities[[4, 1]])
    np.testing.assert_array_equal(one.draws, found.draws[:, [4, 1]])
    np.testing.assert_array_equal(one.expected, found.expected[:, :, [4, 1]])
    truth = np.where(np.arange(14).reshape(7, 2) % 5 == 0, np.nan, 1.0)
    assert error(found, truth) == np.mean(found.mean[~np.isnan(truth)] <= 0.5)


def test_classes_have_their_exact_probabilities():
    """Softmax of zbar @ eta, averaged over drawn topics and over draws; responses are drawn as probable."""
    eta = np.stack([DRAWS["eta"], 1 - DRAWS["eta"], np.zeros_like(DRAWS["eta"])], -1)
    labels = np.array(["bad", "good", "odd"])[np.minimum(WHICH, 2)]
    arguments = {"num_topics": K, "alpha": ALPHA, "response": "softmax", "outputs": 3}
    fit = fit_of(models.slda_glm, {"beta": DRAWS["beta"], "eta": eta}, CORPUS, labels, **arguments)
    found = fit.predict(CORPUS, **EXACTLY)
    assert found.classes.tolist() == ["bad", "good", "odd"] and found.losses is None and found.evidence is None
    for kind in range(len(KINDS)):
        parts = [LAWS[kind, p].moments(softmax(LAWS[kind, p].zbar @ eta[p].astype(float), 1)) for p in POINTS]
        mean, variance, reach = (sum(part) for part in zip(*parts, strict=True))
        own = WHICH == kind
        assert_means(found.probabilities[own], mean / 4, variance / 16, reach / 4)
        shares = (found.draws[:, own, None] == np.arange(3)).mean((0, 1))
        np.testing.assert_allclose(shares, found.probabilities[own].mean(0), atol=0.015)  # 80,000 draws: to 0.002
    np.testing.assert_array_equal(found.code, found.probabilities.argmax(1))
    followed = expected_responses(fit, CORPUS)["y"]
    assert followed.of_classes and followed.values.shape == (2, 2, len(CORPUS), 3)
    for (kind, point), law in LAWS.items():
        zbar = centre_of(at("beta", point), ALPHA, law.terms) / len(law.terms)
        own = followed.values[point][WHICH == kind]
        np.testing.assert_allclose(own, np.tile(softmax(zbar @ eta[point]), (COPIES, 1)), atol=0.02)
    share = followed.values.mean((0, 1))
    np.testing.assert_allclose(followed.variance, share * (1 - share), rtol=1e-5)


def test_scores_are_those_of_the_exact_predictive_law(fit, monkeypatch):
    """A mixture of four posterior draws; topics are folded in once. 400 copies bring noise below the limits.

    The logarithm of a mean over 200 sweeps is known to 0.05 a document, and its mean over 1600 documents to far less.
    """
    y, folded, run = np.array([0.5, -0.4, 1.0, 6.5]), [], FoldIn.run
    monkeypatch.setattr(FoldIn, "run", lambda self, *given, **named: folded.append(1) or run(self, *given, **named))
    frame = scores(fit, CORPUS, y[WHICH], num_burn=20, seed=8)
    assert len(folded) == 1
    names = ["r2", "rmse", "mae", "log_score", "crps", "coverage_50", "coverage_90"]
    assert list(frame.index) == names and list(frame.columns) == ["value", "error", "meaning"]
    laws = [[LAWS[kind, point] for point in POINTS] for kind in range(len(KINDS))]
    mean = [np.mean([law.p @ law.zbar @ at("eta", p) for law, p in zip(of, POINTS, strict=True)]) for of in laws]
    density, below = (
        np.array([
            np.mean([law.p @ f(value, law.zbar @ at("eta", p), at("sigma", p)) for law, p in zip(of, POINTS, strict=True)])
            for value, of in zip(y, laws, strict=True)
        ])
        for f in (stats.norm.pdf, stats.norm.cdf)
    )  # fmt: skip
    np.testing.assert_allclose(frame.loc["rmse", "value"], np.sqrt(np.mean((y - mean) ** 2)), rtol=0.05)
    np.testing.assert_allclose(frame.loc["log_score", "value"], np.log(density).mean(), atol=0.05)
    # far enough from the ends of its interval that draws cannot tell otherwise
    assert np.abs(np.abs(below - 0.5) - 0.25).min() > 0.03 and np.abs(np.abs(below - 0.5) - 0.45).min() > 0.03
    assert abs(frame.loc["coverage_50", "value"] - np.mean(np.abs(below - 0.5) < 0.25)) < 0.1
    assert abs(frame.loc["coverage_90", "value"] - np.mean(np.abs(below - 0.5) < 0.45)) < 0.1
    with pytest.raises(ValueError, match="has 3 values"):
        scores(fit, CORPUS, [1.0, 2.0, 3.0])


def of_theta(corpus, y=None, *, num_topics=K, alpha=ALPHA):
    """A response of the proportions themselves, not of the topics that the words were given."""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([num_topics]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    draw_words(corpus, theta, beta)
    with documents:
        numpyro.sample("y", dist.Normal(theta @ eta, sigma), obs=y)


@pytest.mark.slow
def test_a_response_of_proportions_follows_theta_given_the_words():
    """theta given topics is Dirichlet(alpha + n): 4,000 draws of it stand for each assignment of topics."""
    y = np.array([0.5, -0.4, 1.0, 0.2])[WHICH]
    fit = fit_of(of_theta, DRAWS, CORPUS, y)
    found = fit.predict(CORPUS, **EXACTLY).expected
    logs = inference.log_likelihood(fit, CORPUS, y, inner=2, num_burn=20, seed=2)
    rng = np.random.default_rng(0)
    for (kind, point), law in LAWS.items():
        chosen = law.counts[rng.choice(len(law.p), 4000, p=law.p)]
        theta = rng.standard_gamma(ALPHA + chosen)
        means = theta / theta.sum(1, keepdims=True) @ at("eta", point)
        own, value = WHICH == kind, y[WHICH == kind][0]
        for drawn, exact in (
            (found[point][own], means),
            (found[point][own] ** 2, means**2),
            (np.exp(logs[point][own]), stats.norm.pdf(value, means, at("sigma", point))),
        ):
            limit = 5.3 * exact.std() * np.sqrt(1 / COPIES + 1 / 4000)
            assert abs(drawn.mean() - exact.mean()) < limit, (kind, point)
