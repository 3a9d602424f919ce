"""Coefficients of few topics that stand in for all: least squares, probabilities, and the order of topics."""

import numpy as np
import pytest
from fits import fit_of
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr

from topiczoo.corpora import Corpus
from topiczoo.inference.predictive.fold_in import FoldIn
from topiczoo.inference.predictive.predicting import plug_in_topics
from topiczoo.inference.predictive.projection import newton, project, squared
from topiczoo.models import sstm


def probit(share):
    """LogScore to probabilities under P(1) = Phi(predictor), written by hand."""

    def log_score(f):
        yes, no = log_ndtr(f), log_ndtr(-f)
        density = np.exp(-(f**2) / 2) / np.sqrt(2 * np.pi)
        up, down = density / np.exp(yes), density / np.exp(no)
        curve = share * up * (f + up) + (1 - share) * down * (down - f)
        return share * yes + (1 - share) * no, share * up - (1 - share) * down, curve

    return log_score


@pytest.fixture
def shares():
    return np.random.default_rng(0).dirichlet(np.full(6, 0.3), 200)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_nearest_in_the_mean_square_are_least_squares(shares, intercept):
    mean = np.array([2.0, -1.0, 0.5, 0.0, 0.0, 0.1])
    order, path, near = project(shares, mean, squared(shares @ mean), intercept)
    assert sorted(order) == list(range(6)) and (np.diff(near) > -1e-9).all()
    np.testing.assert_allclose(shares @ path[-1], shares @ mean, atol=1e-3)
    columns = np.c_[shares[:, order[:2]], np.ones((200, int(intercept)))]
    best = np.linalg.lstsq(columns, shares @ mean, rcond=None)[0]
    np.testing.assert_allclose(shares @ path[2], columns @ best, atol=1e-4)
    assert len(np.unique(np.round(np.delete(path[2], order[:2]), 9))) == 1


def test_the_nearest_in_probability_cannot_be_bettered(shares):
    mean = np.array([2.0, -1.0, 0.5, 0.0, 0.0, 0.1])
    log_score = probit(ndtr(shares @ mean))
    _, path, near = project(shares, mean, log_score, False, order=np.arange(6))
    for size in (1, 2, 3):
        best = minimize(lambda c, size=size: -log_score(shares[:, :size] @ c)[0].mean(), np.zeros(size), tol=1e-10)
        np.testing.assert_allclose(near[size], -best.fun, atol=1e-6)
        np.testing.assert_allclose(path[size, :size], best.x, atol=1e-2)
    assert (np.diff(near) > -1e-7).all()


def test_the_first_step_is_the_topic_that_explains_most(shares):
    """All topics tried one by one."""
    for seed in range(5):
        mean = np.random.default_rng(seed).normal(size=6) * 3
        log_score = probit(ndtr(shares @ mean))
        _, _, near = project(shares, mean, log_score, True)
        alone = []
        for k in range(6):
            columns = np.c_[np.ones(200), shares[:, k]]
            alone.append(log_score(columns @ newton(columns, log_score, np.zeros(2)))[0].mean())
        assert near[1] > max(alone) - 1e-6, (near[1], alone)


@pytest.mark.parametrize("seed", range(4))
def test_each_step_is_the_topic_that_explains_most_beside_those_before(seed):
    """Least squares, where the quadratic is exact: every topic tried beside those that are chosen."""
    rng = np.random.default_rng(seed)
    shares, mean = rng.dirichlet([3.0, 3, 3, 0.2, 0.2, 0.2], 80), rng.normal(size=6) * 2
    order, *_ = project(shares, mean, squared(shares @ mean), True)
    target, columns = shares @ mean, np.ones((80, 1))
    for size in range(4):
        left = np.setdiff1d(np.arange(6), order[:size])
        errors = [np.linalg.lstsq(np.c_[columns, shares[:, k]], target, rcond=None)[1].sum() for k in left]
        assert order[size] == left[np.argmin(errors)]
        columns = np.c_[columns, shares[:, order[size]]]


def test_probabilities_of_zero_and_one_and_unused_topics_stay_finite(shares):
    unused = np.c_[shares, np.zeros(200)]
    mean = np.array([50.0, -50.0, 0.0, 0.0, 0.0, 0.0, 7.0])
    log_score = probit((unused @ mean > 0).astype(float))
    with np.errstate(all="ignore"):
        _, path, near = project(unused, mean, log_score, True)
    assert np.isfinite(path).all() and np.isfinite(near).all()
    assert np.mean((unused @ path[2] > 0) == (unused @ mean > 0)) > 0.95


@pytest.mark.slow
def test_a_yes_or_no_response_is_projected_in_the_storys_own_probabilities():
    rng = np.random.default_rng(1)
    beta = rng.dirichlet(np.full(12, 0.3), 5).astype(np.float32)
    corpus = Corpus.from_counts([rng.multinomial(20, share @ beta) for share in rng.dirichlet(np.full(5, 0.4), 60)])
    eta = (np.array([2.0, -1.5, 0.5, 0.0, -0.2]) + 0.3 * rng.normal(size=(1, 30, 5))).astype(np.float32)
    draws = {"beta": np.broadcast_to(beta, (1, 30, 5, 12)), "eta": eta, "nu": np.ones((1, 30))}
    fit = fit_of(sstm, draws, corpus, np.arange(60) % 2.0, response="probit", sigma=0.5, num_topics=5)
    chosen = fit.select("projection", keep=5, intercept=False)
    fold = FoldIn(fit, fit.corpus, chains=[0])
    zbar = np.asarray(plug_in_topics(fold, fold.means(0))[1])
    share = ndtr(zbar @ fit.draws["eta"][0].T / 0.5).mean(1)

    def near(coefficients):
        f = zbar @ coefficients / 0.5
        return np.mean(share * log_ndtr(f) + (1 - share) * log_ndtr(-f))

    for size in (1, 2, 5):
        for k in np.flatnonzero(chosen.path[size]):
            for move in (-0.02, 0.02):
                moved = chosen.path[size].copy()
                moved[k] += move
                assert near(moved) < near(chosen.path[size]) + 1e-5
