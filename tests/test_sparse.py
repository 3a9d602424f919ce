"""Sparse coefficients: the two identities behind them, the sampler, hard cases, and the selection of topics."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import report
from topiczoo.inference.augmentation import DoubleExponential
from topiczoo.models import COEFFICIENTS, sstm

QUICK = {"num_warmup": 60, "num_samples": 60, "num_chains": 1, "progress_bar": False}


@pytest.mark.parametrize(("eta", "nu"), [(0.0, 1.0), (0.7, 0.05), (-3.0, 2.0)])
def test_laplace_is_a_normal_of_exponential_variance(eta, nu):
    """Equation 2, with the scale nu."""

    def joint(variance):
        return stats.norm.pdf(eta, scale=np.sqrt(variance)) * np.exp(-variance / (2 * nu**2)) / (2 * nu**2)

    found = sum(integrate.quad(joint, *ends, limit=400)[0] for ends in ((0, nu**2), (nu**2, np.inf)))
    np.testing.assert_allclose(found, stats.laplace.pdf(eta, scale=nu), rtol=1e-6)


@pytest.mark.parametrize(("x", "sigma"), [(0.3, 0.5), (-2.0, 1.0), (4.0, 2.0)])
def test_probit_is_a_normal_cut_at_zero(x, sigma):
    """Equation 4: both signs of y."""
    for ends, sign in (((0, np.inf), 1), ((-np.inf, 0), -1)):
        found = integrate.quad(lambda u: stats.norm.pdf(u, x, sigma), *ends)[0]
        np.testing.assert_allclose(found, stats.norm.cdf(sign * x / sigma), rtol=1e-6)


@pytest.mark.parametrize("nu", [0.05, 1.0])
def test_the_scale_of_a_coefficient_has_the_law_of_equation_8(nu):
    """Its reciprocal is drawn; the scale itself is GIG(1/2, 1 / nu^2, eta^2)."""
    eta = 0.4
    draws = DoubleExponential().draw(jax.random.key(0), dist.Laplace(0, nu), jnp.full(20_000, eta), 0)
    law = stats.geninvgauss(0.5, eta / nu, scale=eta * nu)
    assert stats.kstest(1 / np.asarray(draws, float), law.cdf).pvalue > 1e-4


def planted(num_documents=120, seed=0):
    """Four topics of six terms each; the first raises the response, the second lowers it, the others do nothing."""
    rng = np.random.default_rng(seed)
    beta = np.kron(np.eye(4), np.full(6, 1 / 6))
    theta = rng.dirichlet(np.full(4, 0.3), num_documents)
    counts = np.array([rng.multinomial(60, share @ beta) for share in theta])
    x = theta @ np.array([2.0, -2.0, 0.0, 0.0])
    return Corpus.from_counts(counts), x + 0.2 * rng.normal(size=num_documents)


CASES = {
    "regression": {}, "given scales": {"nu": 0.5, "sigma": 0.3}, "probit": {"response": "probit"},
    "several": {"outputs": 2}, "several probit": {"outputs": 2, "response": "probit"},
    "horseshoe": {"prior": "horseshoe"}, "spike and slab": {"prior": "spike_and_slab"},
    "spike and slab, probit": {"prior": "spike_and_slab", "response": "probit"},
    "dense": {"prior": "dense"},
}  # fmt: skip


def responses(y, settings):
    y = (y > 0).astype(float) if settings.get("response") == "probit" else y
    return np.stack([y, y[::-1]], 1) if "outputs" in settings else y


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in ("regression", "probit") else pytest.mark.slow) for case in CASES]
)
def test_every_block_has_the_storys_conditional(case):
    settings = CASES[case]
    corpus, y = planted(20)
    table = inference.check(sstm, corpus, responses(y, settings), num_topics=3, **settings)
    assert table["passes"].all(), table.to_string()
    served = {site: row.block for row in table.itertuples() for site in row.sites.split(", ")}
    normal = settings.get("prior") in ("horseshoe", "dense")
    assert served["eta"] == ("normal draw" if normal else "normal draw given auxiliary variables")
    if "nu" in served:
        by = "NUTS given the rest" if case == "horseshoe" else "generalised inverse Gaussian draw"
        assert served["nu"] == by


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_coefficients_of_any_size_can_be_left(value):
    law = dist.Laplace(0, 0.5)
    precision = np.asarray(DoubleExponential().draw(jax.random.key(0), law, jnp.full(1000, value), 0))
    assert np.isfinite(precision).all() and (precision > 0).all()


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
    corpus, y = planted()
    return inference.gibbs(sstm, corpus, y, num_topics=5, num_warmup=200, num_samples=100, num_chains=2,
                           gamma=0.1, progress_bar=False)  # fmt: skip


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


@pytest.mark.slow
def test_the_report_shows_which_topics_count(tmp_path):
    corpus, y = planted()
    fit = inference.gibbs(sstm, corpus, y, num_topics=10, **QUICK)
    page = report(fit, tmp_path / "report.html", progress_bar=False).read_text()
    assert "Which topics count" in page and "of 10 coefficients of chain 0 are kept, by steps" in page
    assert "Error by topics kept." in page
