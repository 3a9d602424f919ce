"""Variational EM with a margin: the tilt of the paper, the objective, both ways to solve its machine, and refusals."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import digamma
from test_margins import EVERY, each, planted
from test_vem_stories import words

from topiczoo import inference
from topiczoo.inference.expectations import Settings
from topiczoo.inference.expectations_margin import MarginWords
from topiczoo.inference.reading import read
from topiczoo.models import OneAgainstAll, medlda

ARGUMENTS = {"num_topics": 4, "cost": 4.0, "gamma": 0.1}
SERVED = {name: EVERY[name] for name in ("binary", "classes", "one_against_all", "partial")}


def form(margin, **settings):
    corpus, y = planted(margin)
    return MarginWords(read(medlda, corpus, y, {"margin": margin, **ARGUMENTS, **EVERY[margin]}), Settings(**settings))


def test_the_tilt_is_equation_21():
    """phi and gamma against a loop over the documents' terms, at coefficients and multipliers of one's own."""
    ours = form("classes", e_tolerance=0.0, e_iterations=300)
    rng = np.random.default_rng(0)
    y, counts = ours.response.target, ours.reading.corpus.counts.toarray()
    multipliers = rng.dirichlet(np.ones(3), len(y)) * 2
    multipliers[np.arange(len(y)), y] = 0
    duals = multipliers.copy()
    duals[np.arange(len(y)), y] = -multipliers.sum(1)
    eta = rng.normal(0, 3, (4, 3))
    state = ours.expect(ours.start(rng)._replace(coefficients=eta, duals=duals.astype(np.float32)), fresh=True)
    topics = state.topics
    log_beta = digamma(topics) - digamma(topics.sum(1, keepdims=True))
    for d in range(0, len(y), 7):
        length, gamma = counts[d].sum(), 0.1 + np.full(4, counts[d].sum() / 4)
        pull = sum(multipliers[d, c] * (eta[:, y[d]] - eta[:, c]) for c in range(3)) / length
        for _ in range(300):
            log_phi = (digamma(gamma) - digamma(gamma.sum()) + pull)[:, None] + log_beta
            phi = np.exp(log_phi - log_phi.max(0))
            gamma = 0.1 + (phi / phi.sum(0)) @ counts[d]
        np.testing.assert_allclose(np.asarray(state.gamma)[d], gamma, rtol=2e-3, atol=2e-3)


@each(SERVED)
def test_documents_are_learned_and_the_objective_settles(margin):
    corpus, y = planted(margin, 120)
    fit = inference.vem(
        medlda, corpus[:90], y[:90], margin=margin, num_iterations=40, progress_bar=False, weight=2.0, **ARGUMENTS,
        **EVERY[margin],
    )  # fmt: skip
    bound = np.array(fit.info["bound"])
    assert (np.diff(bound) > -2e-3 * np.abs(bound[1:])).all()  # one step of phi: it may fall, but a little
    assert bound[-1] > bound[0] and 0 < fit.info["support_vectors"] <= 90 * 3
    found = fit.predict(corpus[90:], rule="plug-in")
    if margin == "partial":
        assert np.corrcoef(found.mean, y[90:])[0, 1] > 0.85
    else:
        assert np.mean(found.label == y[90:]) > 0.85
    # q(eta) has the prior's variance around the machine's coefficients
    np.testing.assert_allclose(fit.draws["eta"][0].std(0), 1, atol=0.25)


def test_both_ways_to_solve_the_machine_end_at_the_same_optimum():
    rng = np.random.default_rng(0)
    ways = [form("classes", slack=slack) for slack in ("n", "one")]
    state = ways[0].expect(ways[0].start(rng), fresh=True)
    one, other = (way.bound(way.maximise(state, fresh=True)) for way in ways)
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_unlabelled_documents_are_not_tilted():
    corpus, y = planted("binary")
    y[::3] = np.nan
    ours = MarginWords(read(medlda, corpus, y, {"margin": "binary", **ARGUMENTS}), Settings())
    state = ours.maximise(ours.expect(ours.start(np.random.default_rng(0)), fresh=True), fresh=True)
    tilt = np.abs(ours.tilt(state)).max(1)
    assert (tilt[::3] == 0).all() and tilt.max() > 0


def test_a_laplace_prior_keeps_fewer_coefficients():
    corpus, y = planted("binary", 120)
    settings = {"margin": "binary", "num_iterations": 30, "progress_bar": False, **ARGUMENTS, "num_topics": 8}
    dense, sparse = (
        inference.vem(medlda, corpus, y, prior=prior, nu=nu, **settings).means["eta"][0]
        for prior, nu in (("dense", 1.0), ("laplace", 0.3))
    )
    shares = [np.sort(np.abs(eta) / np.abs(eta).sum()) for eta in (dense, sparse)]
    assert shares[1][:4].sum() < shares[0][:4].sum()


def test_the_weight_of_the_loss_is_found_by_cross_validation():
    corpus, y = planted("binary")
    names = np.where(y == 1, "yes", "no")
    search = {
        "folds": 3,
        "margin": "binary",
        "num_iterations": 15,
        "predict": {"rule": "plug-in"},
        "progress_bar": False,
    }
    table = inference.grid_search(inference.vem, medlda, corpus, names, {"weight": [1e-5, 2.0]}, **ARGUMENTS, **search)
    assert table["weight"].tolist() == [2.0, 1e-5] and table["error"][0] < 0.2 < table["error"][1]
    assert table.attrs["error"] == "share of wrong classes"
    for grid, sentence in (
        ({}, "give lists of values"),
        ({"weight": "1"}, "give lists of values"),
        ({"cost": [1.0]}, "cost is in the grid"),
    ):
        with pytest.raises(ValueError, match=sentence):
            inference.grid_search(inference.vem, medlda, corpus, names, grid, **ARGUMENTS, **search)


def test_what_is_not_served_is_named():
    corpus, y = planted("regression")
    with pytest.raises(ValueError, match="cannot serve the site 'y' of the story 'medlda': it is a second response"):
        inference.vem(medlda, corpus, y, margin="regression")
    with pytest.raises(ValueError, match="cannot serve the site 'nu'"):
        inference.vem(medlda, *planted("binary"), margin="binary", prior="laplace", nu=None)
    with pytest.raises(ValueError, match="its prior is StudentT"):

        def heavy(shape, nu):
            return numpyro.sample("eta", dist.StudentT(3, 0, nu).expand(shape).to_event(len(shape)))

        inference.vem(medlda, *planted("binary"), margin="binary", prior=heavy)
    with pytest.raises(ValueError, match="slack is 'two'; choose from 'n', 'one'"):
        inference.vem(medlda, *planted("binary"), margin="binary", slack="two")


def test_the_story_is_read_not_known():
    """A margin in a story of one's own, its scores shifted: named, not misread."""

    def shifted(corpus, y=None, *, num_topics=3):
        eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics, 3]).to_event(2))
        scores = words(corpus, num_topics) @ eta + 1.0
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", OneAgainstAll(scores, 1.0, 4.0), obs=y)

    with pytest.raises(ValueError, match="its scores are not zbar @ eta alone"):
        inference.vem(shifted, *planted("classes"))
