"""Prediction: decisions under a margin, names of classes, unknown words, what is refused, and what is compiled once."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
from fits import fit_of
from scipy import special as scipy_special
from stories import naive_bayes

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics.reporting.documents import _add_responses
from topiczoo.diagnostics.scoring.predictive_scores import scores
from topiczoo.inference import Fit
from topiczoo.inference.em.starts import coefficients_by_response, topics_by_response
from topiczoo.inference.kernels import special
from topiczoo.inference.predictive.conformal import Calibration
from topiczoo.inference.predictive.prediction import Prediction
from topiczoo.inference.programs.keeping import forget
from topiczoo.inference.story.reader import bind
from topiczoo.inference.story.response import Response
from topiczoo.inference.story.tracing import Story

RNG = np.random.default_rng(0)
BETA = RNG.dirichlet(np.full(6, 0.7), 3).astype(np.float32)
ETA = np.array([-1.0, 0.3, 2.0], np.float32)
COUNTS = np.array([[2, 0, 1, 0, 3, 1], [0, 1, 0, 2, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 5, 0, 0, 2]])
CORPUS = Corpus.from_counts(COUNTS)
ALPHA = 0.4


@pytest.fixture(scope="module")
def at_the_truth():
    """A fit of one chain of one draw: all parameters known."""
    story = Story(models.slda, {"num_topics": 3, "alpha": ALPHA})
    y = np.arange(4, dtype=np.float32)
    draws = {"beta": BETA[None, None], "eta": ETA[None, None], "sigma": np.full((1, 1), 0.1, np.float32)}
    return Fit.of(bind(story, CORPUS, Response({"y": y})), draws, engine="gibbs")


def test_under_a_margin_the_class_of_the_least_loss_in_the_mean_of_draws_is_decided_on():
    """As by the mean of scores: one draw that is sure outweighs two that are not, which would outvote it."""
    story = Story(models.medlda, {"margin": "binary", "num_topics": 3, "weight": 10.0, "cost": 1.0})
    y = np.array([0.0, 1.0, 0.0, 1.0], np.float32)
    scores = np.array([-0.1, -0.1, 0.8], np.float32)
    draws = {"beta": np.tile(BETA, (1, 3, 1, 1)), "eta": np.tile(scores[None, :, None], (1, 1, 3))}
    found = Fit.of(bind(story, CORPUS, Response({"y": y})), draws, engine="gibbs").predict(CORPUS)
    expected = [10 * np.maximum(0, 1 - sign * scores).mean() for sign in (-1, 1)]
    np.testing.assert_allclose(found.losses, np.tile(expected, (4, 1)), rtol=1e-4)
    np.testing.assert_allclose(found.probabilities[:, 1], np.mean(1 / (1 + np.exp(-20 * scores))), rtol=1e-4)
    assert (found.probabilities[:, 1] < 0.5).all() and (found.label == 1).all()


def test_quick_special_functions_are_right():
    x = np.concatenate([np.logspace(-4, 6, 20_001), [1, 2, 7.999, 8]]).astype(np.float32)
    for name in ("gammaln", "digamma"):
        truth = getattr(scipy_special, name)(x.astype(float))
        found = np.asarray(jax.jit(getattr(special, name))(x), float)
        assert (np.abs(found - truth) / np.maximum(1, np.abs(truth))).max() < 1e-5


def test_variational_em_starts_where_responses_differ():
    y = np.array([0.0, 10.0, np.nan, 5.0])
    counts, shares = topics_by_response(CORPUS.counts, y, 5)
    assert shares[0].argmax() < shares[3].argmax() < shares[1].argmax()
    np.testing.assert_allclose(shares[2], 0.2)
    np.testing.assert_allclose(counts.sum(), COUNTS.sum())
    eta = coefficients_by_response(np.array([0.0, 1.0, 2.0, 0.0]), np.eye(4)[:, :3] + 0.01, 3)
    assert eta.shape == (3, 3) and (eta.argmax(1) == [0, 1, 2]).all() and np.abs(eta).max() == pytest.approx(1)


def test_classes_go_by_their_names():
    shares = np.array([[0.2, 0.8], [0.9, 0.1]])
    draws = np.array([[1, 0], [1, 1]])
    prediction = Prediction(np.array(["a", "b"]), draws.mean(0), draws, draws[None], shares, np.array(["bad", "good"]))
    assert list(prediction.label) == ["good", "bad"]
    assert prediction.frame().loc["a"].to_dict() == {"label": "good", "p(bad)": 0.2, "p(good)": 0.8}
    shown = [{"responses": []}, {"responses": []}]
    _add_responses(shown, np.array([0.0, np.nan]), np.arange(2), prediction, (0.0, 1.0))
    assert shown[0]["responses"] == [{"name": "y", "y": "bad", "label": "good", "probability": 0.8}]
    assert shown[1]["responses"][0]["y"] is None
    losses = np.array([[0.1, 5.0], [7.0, 0.2]])  # a margin decides by them, whatever the probabilities
    decided = replace(prediction, losses=losses)
    assert list(decided.label) == ["bad", "good"] and list(decided.take(np.array([1])).label) == ["good"]
    codes = Prediction(prediction.names, draws.mean(0), draws, draws[None], shares)
    assert list(codes.label) == [1, 0] and list(codes.frame().columns) == ["label", "p(0)", "p(1)"]


WORDS = CORPUS.vocabulary


@pytest.mark.slow
def test_documents_without_one_known_word_have_the_prior(at_the_truth):
    """Alone and among others; a corpus of another vocabulary is a mistake, and refused."""
    mixed = Corpus.from_counts(
        np.c_[COUNTS, [0, 0, 0, 0]] * [[1], [0], [1], [0]] + np.eye(7, dtype=int)[6], [*WORDS, "x"]
    )
    alone = mixed[np.array([1, 3])]
    for corpus, places in ((mixed, [1, 3]), (alone, [0, 1])):
        found = at_the_truth.predict(corpus)
        np.testing.assert_allclose(found.mean[places], ETA.mean(), rtol=1e-4)
    np.testing.assert_allclose(at_the_truth.transform(mixed)[[1, 3]], 1 / 3, rtol=1e-5)
    np.testing.assert_allclose(at_the_truth.predict(mixed, rule="plug-in").mean[[1, 3]], ETA.mean(), rtol=1e-4)
    forgotten = Corpus.from_counts(COUNTS, list("abcdef"))
    for ask in (at_the_truth.predict, at_the_truth.transform):
        with pytest.raises(
            ValueError, match=r"has the terms 'a', 'b', 'c', \.\.\. and the fit '0', '1', '2', \.\.\., not one in"
        ):
            ask(forgotten)


def test_numbers_that_make_no_sense_are_refused(at_the_truth):
    for options, words in (
        ({"most_draws": 0}, "most_draws is 0; give a whole number of at least 1"),
        ({"most_draws": -1}, "most_draws is -1; give a whole number of at least 1"),
        ({"num_burn": -1}, "num_burn is -1; give a whole number of at least 0"),
        ({"rule": "exact"}, "rule is 'exact'; choose from 'posterior', 'plug-in'"),
        ({"calibrate": 3}, "calibrate must be documents that the fit has not seen"),
        ({"calibrate": (CORPUS, None)}, "y of calibrate is None; give the responses of its documents"),
        ({"calibrate": (CORPUS, np.arange(4.0))}, "calibrate has 4 documents with a response; give 20 at least"),
    ):
        with pytest.raises(ValueError, match=words):
            at_the_truth.predict(CORPUS, **options)
        if "num_burn" in options or "most_draws" in options:
            with pytest.raises(ValueError, match=words):
                at_the_truth.transform(CORPUS, **options)
    found = at_the_truth.predict(CORPUS)
    for ask in (found.interval, found.frame):
        with pytest.raises(ValueError, match="probability is 2; give a number between 0 and 1"):
            ask(2)


def test_a_second_prediction_compiles_nothing_and_is_of_its_own_documents(at_the_truth):
    fit = copy.copy(at_the_truth)
    forget()  # nothing is compiled
    other = Corpus.from_counts(COUNTS[:, ::-1])
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))

    def compiles(ask):
        compiled.clear()
        found = ask()
        return found, sum("backend_compile" in event for event in compiled)

    for ask in (
        lambda corpus: fit.predict(corpus).mean, lambda corpus: fit.predict(corpus, rule="plug-in").mean, fit.transform
    ):  # fmt: skip
        first, number = compiles(lambda ask=ask: ask(CORPUS))
        assert number > 0
        second, number = compiles(lambda ask=ask: ask(other))
        assert number == 0 and not np.allclose(first, second)
        np.testing.assert_array_equal(ask(CORPUS), first)
    sent = pickle.loads(pickle.dumps(fit))
    assert not sent.compiled and not copy.copy(fit).compiled
    for name, value in fit.draws.items():
        np.testing.assert_array_equal(sent.draws[name], value)


def test_raw_intervals_of_a_variational_fit_are_warned_of_once(at_the_truth, monkeypatch):
    draws = {"beta": BETA[None, None]}
    told = {engine: replace(at_the_truth, draws=draws, engine=engine).unsaid for engine in ("vem", "svi", "gibbs")}
    assert [len(told[engine]) for engine in told] == [1, 1, 0]
    monkeypatch.setattr(at_the_truth, "unsaid", told["vem"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prediction = at_the_truth.predict(CORPUS)
        aside = Calibration(prediction.draws[:, np.zeros(20, int)], np.arange(20.0))
        replace(prediction, calibration=aside).interval(0.5)
    with pytest.warns(UserWarning, match=r"by vem are too narrow.*calibrate=\(corpus, y\)"):
        prediction.frame()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prediction.interval()
        at_the_truth.predict(CORPUS).interval()


def log_score(prediction, codes):
    return np.log(prediction.probabilities[np.arange(len(codes)), codes]).mean()


@pytest.mark.parametrize("kind", ["margin", "above"])
def test_numbers_that_are_no_probabilities_are_made_such(kind):
    """A fifth of the labels are noise, which neither a margin nor Bayes' rule knows of."""
    rng = np.random.default_rng(2)
    sides = np.array([[0.4, 0.3, 0.1, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.1, 0.3, 0.4]])
    side = rng.integers(0, 2, 400)
    corpus = Corpus.from_counts([rng.multinomial(30, sides[c]) for c in side])
    codes = np.where(rng.random(400) < 0.2, 1 - side, side)
    labels = np.array(["no", "yes"])[codes]
    if kind == "margin":
        draws = {"beta": sides[None, None], "eta": np.array([[[-1.0, 1.0]]])}
        fit = fit_of(models.medlda, draws, corpus[:200], labels[:200], margin="binary", num_topics=2, weight=10.0)
    else:
        draws = {"beta": sides[None, None], "pi": np.full((1, 1, 2), 0.5)}
        fit = fit_of(naive_bayes, draws, corpus[:200], labels[:200], num_topics=2)
    fit.response = Response({"y": codes[:200].astype(np.float32)}, classes=fit.classes)
    new, truth = corpus[200:], codes[200:]
    raw, found = fit.predict(new, calibrate=False), fit.predict(new)
    set_aside = fit.predict(new, calibrate=(new, labels[200:]))
    assert (raw.label == found.label).all() and (raw.code == set_aside.code).all()
    assert raw.temperature is None and found.temperature > 1 and set_aside.temperature > 1
    assert log_score(raw, truth) < np.log(0.5) - 0.2 and log_score(found, truth) > np.log(0.5) + 0.1
    # nothing was learned from the fitted documents here, so that what is taken off for it is lost
    assert log_score(set_aside, truth) > log_score(found, truth) > log_score(set_aside, truth) - 0.12
    assert list(raw.frame().columns[1:]) == ["share(no)", "share(yes)"]
    assert list(found.frame().columns[1:]) == ["p(no)", "p(yes)"]
    np.testing.assert_allclose(found.draws.mean(), found.probabilities[:, 1].mean(), atol=0.02)
    np.testing.assert_allclose(found.mean, found.probabilities[:, 1])
    if kind == "margin":
        return
    table = scores(fit, new, labels[200:])
    np.testing.assert_allclose(table.loc["log_score", "value"], log_score(found, truth), atol=0.02)
    assert table.loc["accuracy", "value"] == np.mean(found.label == labels[200:])
    own = inference.log_likelihood(fit, new, labels[200:])  # stays the model's
    np.testing.assert_allclose(own[0, 0], np.log(raw.probabilities[np.arange(200), truth]), rtol=1e-3)
