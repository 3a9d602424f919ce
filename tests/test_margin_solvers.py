"""Support vector machines and their duals, against scikit-learn's objective and the conditions of an optimum."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import LinearSVC, LinearSVR

from topiczoo.inference.steps.support_vectors import CRAMMER_SINGER, HINGES, TUBE, n_slack, one_slack, residual

LOSSES = {"hinge": HINGES, "tube": TUBE, "classes": CRAMMER_SINGER}


def problem(kind, num_documents=300, num_topics=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.dirichlet(np.full(num_topics, 0.3), num_documents)
    noise = rng.normal(0, 0.2, num_documents)
    if kind == "tube":
        return x, x @ np.linspace(-1, 1, num_topics) + noise, {"weight": 2.0, "epsilon": 0.05}
    if kind == "hinge":
        return x, (x[:, 0] - x[:, 1] + noise > 0).astype(int), {"weight": 0.7, "cost": 3.0}
    return x, (x[:, :4] + noise[:, None] * rng.normal(size=(1, 4))).argmax(1), {"weight": 0.5, "cost": 4.0}


def primal(kind, coefficients, x, y, parameters):
    penalty = (np.asarray(coefficients, float) ** 2).sum() / 2
    scores = jnp.asarray(x @ coefficients, jnp.float32)
    return penalty + float(LOSSES[kind].value(scores, jnp.asarray(y), parameters).sum())


def sklearns(kind, x, y, parameters):
    """Its coefficients [K, C]; costs of 1 are scaled to ours."""
    common = {"fit_intercept": False, "tol": 1e-8, "max_iter": 200_000}
    if kind == "tube":
        model = LinearSVR(C=parameters["weight"], epsilon=parameters["epsilon"], dual=True, **common)
        return model.fit(x, y).coef_[:, None]
    cost = parameters["cost"]
    how = {"multi_class": "crammer_singer"} if kind == "classes" else {"loss": "hinge", "dual": True}
    return cost * LinearSVC(C=parameters["weight"] / cost, **how, **common).fit(x, y).coef_.T


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("solve", [n_slack, one_slack])
def test_the_optimum_is_scikit_learns(kind, solve):
    x, y, parameters = problem(kind)
    outputs = 4 if kind == "classes" else 1
    found = solve(LOSSES[kind], x, y, np.ones((x.shape[1], outputs)), parameters, gap=2e-5)
    expected = primal(kind, sklearns(kind, x, y, parameters), x, y, parameters)
    np.testing.assert_allclose(found.primal, expected, rtol=1e-4)
    np.testing.assert_allclose(found.primal, primal(kind, found.coefficients, x, y, parameters), rtol=1e-4)
    assert 0 <= found.gap + 1e-3 and found.gap < 1e-3 * found.primal
    # coefficients are what the duals say
    np.testing.assert_allclose(-x.T @ found.duals, found.coefficients, atol=0.05 * np.abs(found.coefficients).max())


@pytest.mark.parametrize("kind", LOSSES)
def test_duals_satisfy_the_conditions_of_an_optimum_and_wrong_ones_do_not(kind):
    x, y, parameters = problem(kind)
    found = n_slack(LOSSES[kind], x, y, np.ones((x.shape[1], 4 if kind == "classes" else 1)), parameters, gap=1e-6)
    assert residual(LOSSES[kind], found, x, y, parameters) < 0.05 * parameters["weight"]
    wrong = found._replace(duals=np.roll(found.duals, 1, axis=0))
    assert residual(LOSSES[kind], wrong, x, y, parameters) > 0.2 * parameters["weight"]


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("solve", [n_slack, one_slack])
def test_prior_variances_of_their_own_scale_the_features(kind, solve):
    x, y, parameters = problem(kind)
    outputs, scale = (4 if kind == "classes" else 1), np.linspace(0.5, 2, x.shape[1])
    variance = np.tile(scale[:, None] ** 2, (1, outputs))
    found = solve(LOSSES[kind], x, y, variance, parameters)
    scaled = n_slack(LOSSES[kind], x * scale, y, np.ones_like(variance), parameters)
    np.testing.assert_allclose(found.primal, scaled.primal, rtol=3e-4 if solve is n_slack else 2e-2)


def test_classes_may_have_variances_of_their_own():
    """As under a Laplace prior: both solvers come to one optimum, and neither is far from it."""
    x, y, parameters = problem("classes")
    variance = np.linspace(0.2, 2, x.shape[1])[:, None] ** 2 * np.array([1.0, 1.0, 10.0, 0.1])
    one, other = (solve(CRAMMER_SINGER, x, y, variance, parameters) for solve in (n_slack, one_slack))
    np.testing.assert_allclose(one.primal, other.primal, rtol=1e-2)
    assert one.gap < 0.02 * one.primal and other.gap < 0.02 * other.primal


@pytest.mark.parametrize("kind", LOSSES)
def test_cuts_of_a_former_machine_still_cut_and_the_first_place_is_never_lost(kind):
    """Features move a little, as between turns of EM: the duals of before are a plane below the loss of now."""
    x, y, parameters = problem(kind)
    variance = np.ones((x.shape[1], 4 if kind == "classes" else 1))
    before = one_slack(LOSSES[kind], x, y, variance, parameters)
    moved = x + 0.02 * np.random.default_rng(1).normal(size=x.shape)
    cold = one_slack(LOSSES[kind], moved, y, variance, parameters, gap=1e-3)
    warm = one_slack(LOSSES[kind], moved, y, variance, parameters, before.duals, first=before.coefficients, gap=1e-3)
    np.testing.assert_allclose(warm.primal, cold.primal, rtol=1e-3)
    assert warm.steps < cold.steps and warm.gap >= -1e-4 * warm.primal
    done = one_slack(LOSSES[kind], moved, y, variance, parameters, warm.duals, first=warm.coefficients, gap=0.5)
    assert done.primal <= warm.primal


@pytest.mark.parametrize(("kind", "weight"), [("hinge", 1e-6), pytest.param("classes", 1e6, marks=pytest.mark.slow)])
def test_extreme_weights_stay_finite(kind, weight):
    x, y, parameters = problem(kind)
    for solve in (n_slack, one_slack):
        found = solve(
            LOSSES[kind], x, y, np.ones((x.shape[1], 4 if kind == "classes" else 1)), {**parameters, "weight": weight}
        )
        assert np.isfinite(found.coefficients).all() and np.isfinite(found.duals).all()


@pytest.mark.parametrize(("kind", "outputs"), [("hinge", 1), ("hinge", 4), ("tube", 1), ("classes", 4)])
def test_a_loss_its_slope_its_conjugate_and_its_proximal_step_belong_together(kind, outputs):
    """The loss as the paper writes it; l(f) + l*(a) = a . f for a subgradient a at f, and so at f = q (v - a) for the
    proximal a, which is what makes it the minimum of q |a - v|^2 / 2 + l*(a)."""
    rng, loss = np.random.default_rng(0), LOSSES[kind]
    scores, v, q = rng.normal(0, 3, (200, outputs)), rng.normal(0, 1.5, (200, outputs)), 1.7
    parameters = {"weight": 0.6, "cost": 2.0, "epsilon": 0.3}
    y = rng.normal(0, 2, 200) if kind == "tube" else rng.integers(0, max(outputs, 2), 200)

    def by_hand(f, y):
        if kind == "tube":
            return 0.6 * max(0.0, abs(f[0] - y) - 0.3)
        if kind == "classes":
            return 0.6 * max(2.0 * (c != y) + f[c] - f[y] for c in range(outputs))
        signs = [2 * y - 1] if outputs == 1 else [1 if c == y else -1 for c in range(outputs)]
        return 0.6 * sum(max(0.0, 2.0 - sign * score) for sign, score in zip(signs, f, strict=True))

    f, target = jnp.asarray(scores, jnp.float32), jnp.asarray(y)
    value = np.array([by_hand(*pair) for pair in zip(scores, y, strict=True)])
    np.testing.assert_allclose(loss.value(f, target, parameters), value, rtol=1e-5, atol=1e-5)
    slope = loss.subgradient(f, target, parameters)
    np.testing.assert_allclose(value + loss.conjugate(slope, target, parameters), (slope * f).sum(-1), atol=1e-4)
    near = loss.prox(jnp.asarray(v, jnp.float32), jnp.float32(q), target, parameters)
    at = q * (v - np.asarray(near))
    value = np.array([by_hand(*pair) for pair in zip(at, y, strict=True)])
    np.testing.assert_allclose(value + loss.conjugate(near, target, parameters), (near * at).sum(-1), atol=1e-4)
