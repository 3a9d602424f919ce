"""Sparse coefficients: blocks, hard cases, and the selection of topics."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.story.reading import read
from topiczoo.models import COEFFICIENTS, sstm

QUICK = {"num_warmup": 60, "num_samples": 60, "num_chains": 1, "progress_bar": False}


def planted(num_documents=120, seed=0):
    """Four topics of six terms each; the first raises the response, the second lowers it, the others do nothing."""
    rng = np.random.default_rng(seed)
    beta = np.kron(np.eye(4), np.full(6, 1 / 6))
    theta = rng.dirichlet(np.full(4, 0.3), num_documents)
    counts = np.array([rng.multinomial(60, share @ beta) for share in theta])
    x = theta @ np.array([2.0, -2.0, 0.0, 0.0])
    return Corpus.from_counts(counts), x + 0.2 * rng.normal(size=num_documents)


CASES = {
    "horseshoe": {"prior": "horseshoe"},
    "spike and slab, probit": {"prior": "spike_and_slab", "response": "probit"},
}  # fmt: skip


def responses(y, settings):
    y = (y > 0).astype(float) if settings.get("response") == "probit" else y
    return np.stack([y, y[::-1]], 1) if "outputs" in settings else y


@pytest.mark.slow
@pytest.mark.parametrize("case", ["horseshoe", "spike and slab, probit"])
def test_every_block_has_the_storys_conditional(case):
    settings = CASES[case]
    corpus, y = planted(20)
    table = inference.check(sstm, corpus, responses(y, settings), num_topics=3, **settings)
    assert table["passes"].all(), table.to_string()
    served = {site: row.block for row in table.itertuples() for site in row.sites.split(", ")}
    assert served["eta"] == ("normal draw" if case == "horseshoe" else "normal draw given auxiliary variables")
    if "nu" in served:
        by = "NUTS given the rest" if case == "horseshoe" else "generalised inverse Gaussian draw"
        assert served["nu"] == by


@pytest.mark.longest
def test_classes_that_words_tell_apart_perfectly_have_finite_coefficients():
    counts = np.zeros((30, 4), int)
    counts[:15, :2], counts[15:, 2:] = 10, 10
    y = np.repeat([0.0, 1.0], 15)
    fit = inference.gibbs(sstm, Corpus.from_counts(counts), y, response="probit", num_topics=2, **QUICK)
    assert np.isfinite(fit.draws["eta"]).all()
    assert (fit.predict(Corpus.from_counts(counts)).label == y).all()


def test_bad_arguments_are_refused_in_a_sentence():
    corpus, y = planted(20)
    for settings, words in (
        ({"response": "logit"}, "response is 'logit'; give 'normal' or 'probit'"),
        ({"prior": "lasso"}, f"prior is 'lasso'; give one of {', '.join(map(repr, COEFFICIENTS))}"),
        ({"nu": 0.0}, "nu is 0.0; give a positive number"),
        ({"sigma": -1}, "sigma is -1; give a positive number"),
        ({"outputs": 3}, "y has no columns and outputs is 3; leave outputs out"),
    ):
        with pytest.raises(ValueError, match=words):
            inference.gibbs(sstm, corpus, y, num_topics=2, **{**QUICK, **settings})
    with pytest.raises(ValueError, match=r"y is constant \(1\); there is nothing to learn"):
        inference.gibbs(sstm, corpus, np.ones(len(corpus)), response="probit", num_topics=2, **QUICK)


@pytest.fixture(scope="module")
def sparse_fit():
    """Draws around what was planted, made by hand; the topics of the second chain stand in another order."""
    corpus, y = planted()
    rng, order = np.random.default_rng(2), np.array([[0, 1, 2, 3, 4], [3, 0, 4, 1, 2]])
    beta = np.vstack([np.kron(np.eye(4), np.full(6, 1 / 6)), np.full(24, 1 / 24)]) + 1e-4
    eta = np.array([2.0, -2.0, 0.0, 0.0, 0.0])[order][:, None] + 0.05 * rng.normal(size=(2, 30, 5))
    draws = {
        "beta": np.broadcast_to((beta / beta.sum(1, keepdims=True))[order][:, None], (2, 30, 5, 24)), "eta": eta,
        "nu": np.full((2, 30), 0.7), "sigma": np.full((2, 30), 0.2), "theta": np.full((2, 30, len(corpus), 5), 0.2),
    }  # fmt: skip
    draws = {site: np.asarray(value, np.float32) for site, value in draws.items()}
    return Fit.of(read(sstm, corpus, y, {"num_topics": 5, "alpha": 0.1}), draws, engine="gibbs")


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["largest", "interval", "projection"])
def test_the_topics_that_count_are_found(sparse_fit, rule):
    chosen = sparse_fit.select(rule, keep=2, intercept=False)
    frame = chosen.frame(3)
    assert frame["kept"].sum() == 2 and (frame["coefficient"][2:] == 0).all()
    leading = [{int(term) // 6 for term in words.split()} for words in frame["terms"][:2]]
    assert leading == [{1}, {0}]  # the one that lowers the response comes first
    test, y = planted(seed=1)
    errors = chosen.errors(test, y).set_index("kept")["error"]
    assert errors[2] < 0.3 * errors[0] and len(errors) == 6
    predicted = chosen.predict(test)
    np.testing.assert_allclose(np.mean((predicted.mean - y) ** 2), errors[2], rtol=1e-4)
    assert "2 of 5" in repr(chosen)


def test_rules_choose_their_own_number(sparse_fit):
    assert 2 <= sparse_fit.select("interval").kept.sum() <= 4
    assert 2 <= sparse_fit.select("projection").kept.sum() <= 4
    assert sparse_fit.select("largest", keep=0.41).kept.sum() == 2
    shifted = sparse_fit.select("projection", keep=2)
    assert len(np.unique(np.round(shifted.coefficients[~shifted.kept], 6))) == 1 and shifted.coefficients.all()
    full = sparse_fit.select("projection", keep=5)
    np.testing.assert_allclose(full.coefficients, full.draws.mean(0), atol=0.02)


def test_the_chain_that_predicts_best_is_summarised(sparse_fit):
    spoilt = copy.copy(sparse_fit)
    for good in (0, 1):
        eta = sparse_fit.draws["eta"].copy()
        eta[1 - good] = eta[1 - good][:, ::-1]  # each topic has another's coefficient
        spoilt.draws = {**sparse_fit.draws, "eta": eta}
        assert spoilt.select("projection", keep=2).chain == good
    assert spoilt.select("projection", keep=2, chain=0).chain == 0


def test_selections_that_make_no_sense_are_refused(sparse_fit):
    for options, words in (
        ({"rule": "lasso"}, "rule is 'lasso'; choose from 'largest', 'interval', 'projection'"),
        ({"rule": "largest"}, "keep is missing for the rule 'largest'"),
        ({"keep": 6}, "keep is 6; give a whole number from 0 to 5"),
        ({"chain": 2}, "chain is 2; the fit has chains 0 to 1"),
        ({"probability": 2}, "probability is 2; give a number between 0 and 1"),
        ({"site": "sigma"}, "site is 'sigma'; the story 'sstm' has the coefficients 'eta'"),
    ):
        with pytest.raises(ValueError, match=words):
            sparse_fit.select(**options)


@pytest.mark.longest
def test_several_responses_are_selected_one_by_one_and_predicted():
    corpus, y = planted()
    both = np.stack([y > 0, y < 0], 1).astype(float)
    fit = inference.gibbs(sstm, corpus, both, response="probit", outputs=2, num_topics=4, **QUICK)
    chosen = fit.select("largest", keep=1)
    assert chosen.kept.sum(0).tolist() == [1, 1] and set(chosen.frame()["output"]) == {0, 1}
    frame = chosen.errors(corpus, both)
    assert frame.attrs["error"] == "share of wrong classes"
    errors = frame["error"]
    assert errors[4] < 0.25 and errors[4] < errors[0]
