"""Margins: their densities and laws of new classes, the blocks that use them, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.models import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll, draw_words, medlda

NUMBERS = {"regression": {}, "partial": {}}
CLASSES = {"binary": {}, "classes": {"outputs": 3}, "one_against_all": {"outputs": 3}}
EVERY = NUMBERS | CLASSES
FAST = ("binary", "classes")


def each(margins):
    return pytest.mark.parametrize(
        "margin", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in margins]
    )


QUICK = {"num_warmup": 40, "num_samples": 40, "num_chains": 1, "progress_bar": False}


def planted(margin, num_documents=60, seed=0):
    """Three topics of six terms each, and responses that follow from the topics."""
    rng = np.random.default_rng(seed)
    beta = np.kron(np.eye(3), np.full(6, 1 / 6))
    theta = rng.dirichlet(np.full(3, 0.2), num_documents)
    corpus = Corpus.from_counts(np.array([rng.multinomial(40, share @ beta) for share in theta]))
    if margin in NUMBERS:
        return corpus, theta @ np.array([1.5, 0.0, -1.5]) + 0.1 * rng.normal(size=num_documents)
    return corpus, (theta[:, 0] > 0.4).astype(float) if margin == "binary" else theta.argmax(1).astype(float)


def loss(name, y, scores, cost, epsilon=0.2):
    """Each loss as the paper writes it."""
    if name == "tube":
        return max(0.0, abs(y - scores) - epsilon)
    if name == "binary":
        return max(0.0, cost - (2 * y - 1) * scores)
    if name == "classes":
        return max(cost * (c != y) + scores[c] - scores[y] for c in range(len(scores)))
    return sum(max(0.0, cost - (1 if c == y else -1) * scores[c]) for c in range(len(scores)))


@pytest.mark.parametrize(("name", "make"), [("classes", MultiClassHinge), ("one", OneAgainstAll), ("binary", Hinge)])
def test_a_class_has_the_log_density_of_its_loss_and_the_law_of_its_normalised_density(name, make):
    """Shares of 20,000 draws at 6 standard errors: 120 comparisons, a right program fails with probability 3e-7."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 2, 30) if name == "binary" else rng.normal(0, 2, (30, 4))
    classes = np.arange(2 if name == "binary" else 4)
    fn = make(jnp.asarray(scores, jnp.float32), 0.7, 1.5)
    found = np.stack([np.asarray(fn.log_prob(jnp.full(30, c))) for c in classes], 1)
    expected = np.array([[-0.7 * loss(name, c, row, 1.5) for c in classes] for row in scores])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    normaliser = np.log(np.exp(expected).sum(1))
    np.testing.assert_allclose(fn.log_normaliser, normaliser, rtol=1e-4, atol=1e-4)
    share = np.exp(expected - normaliser[:, None])
    probs = np.asarray(fn.probs)
    np.testing.assert_allclose(np.stack([1 - probs, probs], 1) if name == "binary" else probs, share, atol=1e-5)
    draws = np.asarray(fn.sample(jax.random.key(0), (20_000,)))
    shares = np.stack([(draws == c).mean(0) for c in classes], 1)
    assert (np.abs(shares - share) <= 6 * np.sqrt(share * (1 - share) / 20_000) + 1e-4).all()
    assert np.abs(np.corrcoef(draws.T) - np.eye(30)).max() < 6 / np.sqrt(20_000)


def test_a_class_that_shares_the_best_score_has_no_margin():
    scores = jnp.array([[1.0, 1.0, 0.0], [2.0, -1.0, 2.0]])
    found = np.stack([MultiClassHinge(scores, 1.0, 0.5).log_prob(jnp.full(2, c)) for c in range(3)], 1)
    np.testing.assert_allclose(found, [[-0.5, -0.5, -1.5], [-0.5, -3.5, -0.5]], atol=1e-6)


def test_the_tube_is_a_density_and_draws_have_it():
    """Kolmogorov-Smirnov at 1e-7, moments against quadrature."""
    weight, epsilon = np.array([1.0, 20.0, 0.3]), np.array([0.5, 1e-3, 0.0])
    fn = EpsilonInsensitive(0.3, jnp.asarray(weight, jnp.float32), jnp.asarray(epsilon, jnp.float32))
    draws = np.asarray(fn.sample(jax.random.key(0), (20_000,)), float)
    places = np.array([-2.0, 0.25, 0.29, 0.31, 0.9, 3.0])[:, None]
    height = np.exp(-weight * np.maximum(0, np.abs(places - 0.3) - epsilon)) / (2 * epsilon + 2 / weight)
    np.testing.assert_allclose(fn.log_prob(jnp.asarray(places, jnp.float32)), np.log(height), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fn.mean, 0.3, rtol=1e-5)
    for i, (w, e) in enumerate(zip(weight, epsilon, strict=True)):
        # the distance from the middle: flat up to epsilon, exponential beyond
        inside = e / (e + 1 / w)
        far = np.abs(draws[:, i] - 0.3)
        law = np.where(far < e, inside * far / max(e, 1e-9), 1 - (1 - inside) * np.exp(-w * np.maximum(far - e, 0)))
        assert stats.kstest(law, "uniform").pvalue > 1e-7
        assert abs((draws[:, i] > 0.3).mean() - 0.5) < 6 * 0.5 / np.sqrt(20_000)
        tail = integrate.quad(lambda r, w=w, e=e: r**2 * np.exp(-w * (r - e)), e, e + 60 / w)[0]
        np.testing.assert_allclose(fn.variance[i], (e**3 / 3 + tail) / (e + 1 / w), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("margin", ["regression", "one_against_all"])
def test_every_block_has_the_storys_conditional(margin):
    corpus, y = planted(margin)
    y[::9] = np.nan
    table = inference.check(medlda, corpus, y, margin=margin, num_topics=3, cost=2.0, epsilon=0.1, **EVERY[margin])
    assert table["passes"].all(), table.to_string()
    served = table.set_index("sites")["block"]
    assert served["eta"] == "normal draw given auxiliary variables", table.to_string()


@pytest.mark.slow
@pytest.mark.parametrize("margin", ["binary", pytest.param("classes", marks=pytest.mark.longest)])
def test_classes_are_learned_and_predicted(margin):
    corpus, y = planted(margin, 120)
    names = np.array(["a", "b", "c"])[y.astype(int)]
    fit = inference.gibbs(medlda, corpus[:90], names[:90], margin=margin, num_topics=4, **EVERY[margin], **QUICK)
    found = fit.predict(corpus[90:], most_draws=20)
    assert np.mean(found.label == names[90:]) > 0.85
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-4)
    assert found.losses.shape == found.probabilities.shape and (found.losses >= 0).all()
    assert np.mean(fit.predict(corpus[90:], rule="plug-in").label == names[90:]) > 0.85
    if margin == "binary":
        chosen = fit.select(keep=2)
        assert chosen.kept.sum() == 2 and np.isfinite(chosen.path).all()
        assert chosen.errors(corpus[90:], names[90:])["error"].iloc[-1] < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("margin", ["partial"])
def test_numbers_are_learned_and_predicted(margin):
    corpus, y = planted(margin, 120)
    fit = inference.gibbs(medlda, corpus[:90], y[:90], margin=margin, num_topics=4, weight=4.0, **QUICK)
    found = fit.predict(corpus[90:], most_draws=20)
    assert np.corrcoef(found.mean, y[90:])[0, 1] > 0.85


@pytest.mark.longest
@pytest.mark.parametrize(("margin", "weight"), [("classes", 1e6)])
def test_extreme_weights_stay_finite(margin, weight):
    corpus, y = planted(margin)
    fit = inference.gibbs(medlda, corpus, y, margin=margin, num_topics=3, weight=weight, **EVERY[margin], **QUICK)
    assert np.isfinite(fit.draws["eta"]).all()


@pytest.mark.slow
def test_a_margin_on_a_story_of_ones_own():
    """A correlated topic model: theta is logistic-normal, so that no block of ours knows it."""

    def correlated(corpus, y=None, *, num_topics=3):
        with numpyro.plate("topics", num_topics):
            beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
        eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
        documents = numpyro.plate("documents", corpus.num_documents)
        with documents:
            mix = numpyro.sample("mix", dist.MultivariateNormal(jnp.zeros(num_topics), 2 * jnp.eye(num_topics)))
        zbar = draw_words(corpus, jax.nn.softmax(mix), beta)
        with documents:
            numpyro.sample("y", Hinge(zbar @ eta, 1.0, 8.0), obs=y)

    corpus, y = planted("binary")
    fit = inference.gibbs(correlated, corpus[:45], y[:45], **QUICK)
    assert fit.info["blocks"]["eta"] == "normal draw given auxiliary variables"
    assert np.isfinite(fit.draws["eta"]).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"margin": "soft"}, "margin is 'soft'; give one of 'binary'"),
        ({"margin": "classes"}, "outputs is None for the margin 'classes'; give the number of classes"),
        ({"margin": "binary", "outputs": 2}, "outputs is 2, but the margin 'binary' has one"),
        ({"margin": "binary", "weight": -1.0}, "weight is -1.0; give a positive number"),
        ({"margin": "classes", "outputs": 2}, "outside the support of the site 'y'"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments, sentence):
    corpus, y = planted("classes")
    with pytest.raises(ValueError, match=sentence):
        inference.gibbs(medlda, corpus, y % 2 if arguments["margin"] == "binary" else y, **arguments)


def test_one_class_alone_is_refused():
    corpus, y = planted("binary")
    with pytest.raises(ValueError, match="y is constant"):
        inference.gibbs(medlda, corpus, 0 * y + 1, margin="binary")
