"""Auxiliary variables: their draws against known laws, and the blocks that use them against the story."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_responses import SETTINGS, simulated

from topiczoo import inference
from topiczoo.inference.augmentation import AUGMENTED, Logistic, Quadratic
from topiczoo.inference.polya_gamma import polya_gamma
from topiczoo.models import slda_glm
from topiczoo.models.truncated import positive_normal

DRAWS = 40_000


@pytest.mark.parametrize("count", [1, 3])
def test_polya_gamma_has_the_known_laplace_transform(count):
    tilts = np.array([0.0, 1e-3, 0.5, 2.0, 3.0, 3.3, 6.0, 40.0, 200.0])
    sample = jax.jit(
        lambda tilt: polya_gamma(jax.random.key(1), jnp.full((DRAWS, tilt.size), count), tilt + jnp.zeros((DRAWS, 1)))
    )
    draws = np.asarray(sample(jnp.asarray(tilts)), float)
    assert (draws > 0).all()
    for t in (0.3, 3.0):
        seen = np.exp(-t * draws)
        half, root = tilts / 2, np.sqrt((tilts**2 / 2 + t) / 2)
        known = np.exp(count * (np.logaddexp(half, -half) - np.logaddexp(root, -root)))
        gap = (seen.mean(0) - known) / (seen.std(0) / np.sqrt(DRAWS))
        assert np.abs(gap).max() < 4, gap


@pytest.mark.parametrize("mean", [6.0, 1.0, 0.0, -3.0, -3.99, -4.01, -8.0, -40.0])
def test_a_normal_cut_at_zero_is_right_however_far_out(mean):
    draws = np.asarray(positive_normal(jax.random.key(2), jnp.full(20_000, mean)), float)
    assert (draws > 0).all()
    # P(N > u | N > 0) through log survival functions, which hold far out
    tail = np.exp(stats.norm.logsf(draws - mean) - stats.norm.logsf(-mean))
    assert stats.kstest(tail, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("name", ["logit", "probit", "softmax"])
def test_coefficients_are_drawn_exactly_with_covariates_and_unlabelled_documents(name):
    settings = SETTINGS.get(name, {})
    corpus, y = simulated(name, **settings)
    y[::7] = np.nan
    table = inference.check(slda_glm, corpus, y, response=name, num_topics=3, covariates=("age",), **settings)
    assert table["passes"].all(), table.to_string()
    row = table[table["block"] == "normal draw given auxiliary variables"].iloc[0]
    assert row["sites"] == "eta, slope_age"


def test_a_wrong_augmentation_is_not_used(monkeypatch):
    class TwiceThePrecision(Logistic):
        def quadratic(self, auxiliary, fn, value, column):
            return Quadratic(value - 0.5, 2 * auxiliary)

    corpus, y = simulated("logit")
    (family,) = (
        family for family, kind in AUGMENTED.items() if kind.__class__ is Logistic and "Bernoulli" in family.__name__
    )
    monkeypatch.setitem(AUGMENTED, family, TwiceThePrecision())
    table = inference.check(slda_glm, corpus, y, response="logit", num_topics=3)
    assert table.set_index("sites")["block"]["eta"] == "NUTS given the rest"
