"""What is said of a fit with a weight of the response: in its name, in the verdict and in the report."""

from __future__ import annotations

import numpy as np
import pytest
from test_diagnosis import followed, other_topics

from topiczoo import inference
from topiczoo.commands.arguments import read_settings
from topiczoo.diagnostics import diagnose, report
from topiczoo.diagnostics.convergence.followed import Followed
from topiczoo.diagnostics.convergence.weighed import explained, held_out_check
from topiczoo.inference import Fit
from topiczoo.inference.posterior.posterior import serving
from topiczoo.inference.predictive.expected_responses import Expected
from topiczoo.inference.predictive.prediction import Prediction
from topiczoo.models import slda

SENTENCE = "topics serve the predictions: with response_weight=30 they are no draws of the posterior"


def weighed(**changed):
    """Two chains with other topics that predict alike, as if 20 of the 40 documents had been held out."""
    fit = other_topics()
    fit.info |= {"response_weight": 30.0, "held_out": list(range(20)), **changed}
    return fit


def test_a_fit_says_its_weight():
    assert serving({}) == serving({"response_weight": 1.0}) == ""
    assert serving({"response_weight": 30}) == SENTENCE
    assert serving({"response_weight": 0.5}).startswith("topics follow the words: with response_weight=0.5")
    assert repr(weighed()).endswith(f"; {SENTENCE}")
    assert "posterior" not in repr(other_topics())


def test_the_verdict_of_a_weighed_fit_speaks_of_predictions():
    """Chains with other topics, whose R-hat is large: predictions are not condemned for it, and nothing is to be done."""
    found = diagnose(weighed())
    assert found.verdict.startswith("Rely on predictions only, not on topics and coefficients.")
    assert found.reliance.loc["topics", "why"] == SENTENCE
    assert found.reliance.loc["coefficients", "why"] == f"a coefficient belongs to a topic, and {SENTENCE}"
    assert "the mean of chains explains" in found.reliance.loc["predictions", "why"]
    assert list(found.checks.index) == ["chains predict alike", "held-out responses are predicted"]
    assert found.passes and "R-hat" not in found.verdict and "More draws" not in found.verdict
    assert found.numbers["passes"].isna().all() and found.numbers["r_hat"].max() > 1.5
    assert "Give num_chains=8 or more" in found.verdict
    assert (found.numbers["kind"] == "prediction").sum() == 20  # of the documents held out


def test_predictions_that_miss_what_was_held_out_are_not_relied_on():
    fit = weighed()
    fit.draws["eta"] = -fit.draws["eta"]
    found = diagnose(fit)
    assert found.verdict.startswith("Do not rely on this posterior.")
    assert found.checks.loc["held-out responses are predicted", "value"] < 0
    none = diagnose(weighed(held_out=[]))
    assert none.reliance.loc["predictions", "grade"] == "cannot be known"
    assert "no documents were held out" in none.reliance.loc["predictions", "why"]


def test_one_chain_that_predicts_what_was_held_out_is_taken_with_care():
    fit = weighed()
    fit.draws = {name: value[:1] for name, value in fit.draws.items()}
    found = diagnose(fit)
    assert found.reliance.loc["predictions", "grade"] == "with care"


def test_the_share_explained_is_that_of_the_mean_of_chains():
    part = followed([0.5, -0.5], noise=0.6)
    truth, values = part.told[:, 0], part.expected.values.mean(1)[..., 0]
    for chain, mean in ((None, values.mean(0)), (1, values[1])):
        expected = 1 - ((truth - mean) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
        assert explained(part, chain) == pytest.approx(expected)
    (check,) = held_out_check(weighed(), {"y": part})
    assert check["value"] == explained(part) > explained(part, 0) and check["passes"]
    assert f"each alone {min(explained(part, 0), explained(part, 1)):.2f} to" in check["meaning"]


def test_a_response_that_lacks_a_part_explains_nothing():
    """Of two numbers a document; those that have both are explained as if there were no others."""
    rng = np.random.default_rng(0)
    values, told = rng.normal(size=(2, 5, 8, 2)), rng.normal(size=(8, 2))
    told[[1, 4, 6], [0, 1, 1]], told[7] = np.nan, np.nan
    part = Followed(np.arange(8), Expected(values, np.ones((8, 2)), False), told)
    whole = [0, 2, 3, 5]
    mean = values.mean((0, 1))[whole]
    expected = 1 - ((told[whole] - mean) ** 2).sum() / ((told[whole] - told[whole].mean(0)) ** 2).sum()
    assert explained(part) == pytest.approx(expected)


@pytest.mark.parametrize("told", [np.eye(3)[[0] * 8 + [1, 2]], np.arange(10.0)[:, None] * [1, 1, 1] + [0, 50, 100]])
def test_what_says_nothing_of_single_documents_explains_nothing(told):
    """The shares of classes, or the means of several numbers, for every document."""
    expected = np.broadcast_to(told.mean(0), (2, 3, *told.shape))
    part = Followed(np.arange(10), Expected(expected, np.ones_like(told), False), told)
    assert explained(part) == pytest.approx(0)
    worse = part._replace(expected=part.expected._replace(values=expected + 0.1))
    (check,) = held_out_check(weighed(), {"y": worse})
    assert check["value"] < 0 and not check["passes"]


@pytest.mark.parametrize(("engine", "info"), [("vem", {"bound": [-9.0, -8.0], "converged": True}),
                                              ("svi", {"losses": np.exp(-np.arange(400.0)) + 5})])  # fmt: skip
def test_an_approximation_with_a_weight_is_judged_by_what_was_held_out(engine, info):
    fit = weighed(**info)
    fit.engine = engine
    fit.draws = {name: value[:1] for name, value in fit.draws.items()}
    found = diagnose(fit)
    assert found.reliance["grade"].to_dict() == {
        "topics": "do not rely", "coefficients": "do not rely", "predictions": "rely",
    }  # fmt: skip
    assert found.passes and "importance" not in found.checks.to_string()


@pytest.mark.slow
def test_the_report_says_what_topics_are_for(tmp_path, monkeypatch):
    def predict(fit, corpus, **options):
        draws = np.random.default_rng(0).normal(size=(100, len(corpus)))
        return Prediction(corpus.names, draws.mean(0), draws, draws.reshape(2, 50, -1))

    monkeypatch.setattr(Fit, "predict", predict)
    page = report(diagnose(weighed(), predictions=0), tmp_path / "page.html", documents=3, progress_bar=False)
    text = page.read_text(encoding="utf-8")
    said = SENTENCE[0].upper() + SENTENCE[1:]
    assert text.count(said) >= 3  # with topics, coefficients and convergence
    assert "40 documents, 4 topics, response_weight=30" in text
    assert "R-hat is told here, and judges nothing" in text and "Posterior mean" not in text
    assert "response_weight=30.0" in text  # in the call


@pytest.mark.parametrize("engine", ["gibbs", "nuts", "svi", "vem"])
def test_the_command_line_has_a_weight_for_every_engine(engine):
    assert read_settings(["response_weight=3"], slda, getattr(inference, engine)) == {"response_weight": 3}
