"""Intervals, probabilities and cross-validation on predictions made by hand: every number is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.predictive import cross_validation, predicting, probabilities
from topiczoo.inference.predictive.conformal import Calibration, bounds, calibrated, widths
from topiczoo.inference.predictive.predicting import _calibrated, from_fitted
from topiczoo.inference.predictive.prediction import Prediction
from topiczoo.inference.predictive.probabilities import from_aside, temperature, tempered
from topiczoo.inference.predictive.selection import error
from topiczoo.inference.story.response import Response

RNG = np.random.default_rng(0)


def predicted(draws, **told):
    """A prediction with given draws [draw, documents]."""
    names = np.array([str(i) for i in range(draws.shape[1])])
    return Prediction(names, draws.mean(0), draws, draws[None].astype(float), **told)


GRID = np.arange(101.0)[:, None] * [1.0, -2.0, 0.1]  # quantile q of the first is 100 q


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.9, 0.95])
def test_an_interval_leaves_out_as_much_on_either_side(probability):
    tail = 50 * (1 - probability)
    found = predicted(GRID).interval(probability)
    expected = [[tail, 100 - tail], [2 * tail - 200, -2 * tail], [tail / 10, 10 - tail / 10]]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    frame = predicted(GRID).frame(probability)
    np.testing.assert_allclose(frame[["low", "high"]], expected, atol=1e-9)
    assert list(frame["mean"]) == [50, -100, 5] and list(frame.index) == ["0", "1", "2"]
    several = predicted(np.stack([GRID, GRID + 7], -1)).interval(probability)  # [documents, parts, 2]
    np.testing.assert_allclose(several[:, 1], np.add(expected, 7), atol=1e-9)


def test_the_interval_is_of_90_percent_unless_told():
    np.testing.assert_allclose(predicted(GRID).interval()[0], [5, 95])
    np.testing.assert_allclose(predicted(GRID).frame().loc["0", ["low", "high"]].astype(float), [5, 95])


def test_the_growth_is_the_score_of_the_right_place():
    """Twenty documents, intervals from 5 to 95 wide 90, and responses at scores 0.01, 0.02, ... 0.2 of it, mixed up.

    The next document is as likely in any of 21 places: 90% takes the 19th score, 95% the 20th, and more cannot be told.
    """
    draws, scores = np.repeat(GRID[:, :1], 20, 1), RNG.permutation(np.arange(1, 21)) / 100

    def told(sides):
        low, high = bounds(draws, 0.9)
        return Calibration.of(draws, np.where(sides, high + 90 * scores, low - 90 * scores))

    for sides in (np.ones(20, bool), np.zeros(20, bool), np.arange(20) % 2 == 0):  # above, below, either
        assert told(sides).growth(0.9) == pytest.approx(0.19)
    above = Calibration(draws, bounds(draws, 0.95)[1] + 95 * scores)
    assert above.growth(0.95) == pytest.approx(0.20)
    half = Calibration(draws, bounds(draws, 0.5)[1] + 50 * scores)
    assert half.growth(0.5) == pytest.approx(0.11)  # 10.5 of 21 places: the 11th
    with pytest.raises(ValueError, match=r"20 documents in calibrate are too few for an interval of 0.96; give 24 at"):
        above.growth(0.96)
    inside = Calibration(draws, np.full(20, 50.0))  # in the middle: by half of the width on either side too wide
    assert inside.growth(0.9) == pytest.approx(-0.5)
    # as many as lie within, counted: intervals grown by the 19th score hold 19 of 20
    low, high = calibrated(draws, 0.9, told(np.arange(20) % 2 == 0))
    np.testing.assert_allclose([low[0], high[0]], [5 - 0.19 * 90, 95 + 0.19 * 90])


def test_every_part_and_document_grows_by_its_own():
    """By a share of its own width, which differs from document to document; the shares are those of the part."""
    spread = np.linspace(1, 3, 20)
    draws = GRID[:, :1, None] * spread[:, None] * [1.0, 10.0]  # [draw, documents, parts]
    low, high = bounds(draws, 0.9)
    y = high + (high - low) * np.arange(1, 21)[:, None] / 100 * [1.0, -0.1]
    told = Calibration.of(draws, y)
    np.testing.assert_allclose(told.growth(0.9), [0.19, -0.002])
    low_, high_ = calibrated(draws[:, :3], 0.9, told)
    np.testing.assert_allclose(low_, (low - (high - low) * [0.19, -0.002])[:3])
    np.testing.assert_allclose(high_, (high + (high - low) * [0.19, -0.002])[:3])


def test_intervals_shrunk_past_each_other_meet_in_the_middle():
    draws = np.repeat(GRID[:, :1], 20, 1)
    told = Calibration(draws, np.full(20, 50.0))
    grown = SimpleNamespace(growth=lambda probability: -0.7)
    low, high = calibrated(draws, 0.9, grown)
    np.testing.assert_allclose([low, high], 50)
    np.testing.assert_allclose(calibrated(draws, 0.9, told), 50)


def test_counts_stay_whole_and_above_their_bound():
    draws = np.repeat(GRID[:, :1] / 10, 20, 1)  # 90%: 0.5 to 9.5
    grown = SimpleNamespace(growth=lambda probability: 0.1)  # by 0.9
    low, high = calibrated(draws, 0.9, grown, lowest=0, whole=True)
    np.testing.assert_array_equal([low[0], high[0]], [0, 10])
    low, high = calibrated(draws, 0.9, grown, whole=True)
    np.testing.assert_array_equal([low[0], high[0]], [-0.0, 10])
    low, high = calibrated(draws, 0.9, SimpleNamespace(growth=lambda probability: 0.3), lowest=0)
    np.testing.assert_allclose([low[0], high[0]], [0, 9.5 + 2.7])
    low, high = calibrated(draws, 0.9, SimpleNamespace(growth=lambda probability: -0.1), whole=True)
    np.testing.assert_array_equal([low[0], high[0]], [2, 8])  # 1.4 to 8.6
    told = replace(predicted(draws), calibration=Calibration(draws, np.full(20, 30.0)), lowest=0.0, whole=True)
    np.testing.assert_array_equal(told.interval(0.9)[0], [0, 30])
    # draws that are all the same have a width still, a thousandth of the mean one
    np.testing.assert_allclose(widths(np.zeros(3), np.array([0.0, 1.0, 2.0])), [1e-3, 1.0, 2.0])
    assert (widths(np.zeros(3), np.zeros(3)) > 0).all()


def test_intervals_of_counts_hold_the_count_that_they_have_grown_for_however_numbers_are_rounded():
    """Where all documents are alike an interval ends at the response itself; low minus width times score may be
    7.000000000000001 where 7 is meant."""
    for number in (23, 34, 40, 47):
        draws = np.repeat(np.arange(number)[:, None], 20, 1)
        for y in range(number):
            for probability in (0.5, 0.8, 0.9):
                low, high = calibrated(draws, probability, Calibration(draws, np.full(20, float(y))), whole=True)
                assert low[0] <= y <= high[0] and low[0] % 1 == high[0] % 1 == 0, (number, y, probability)


def test_responses_that_are_missing_do_not_calibrate():
    draws, y = np.repeat(GRID[:, :1], 30, 1), np.arange(30.0)
    y[[3, 5]] = np.nan
    told = Calibration.of(draws, y)
    np.testing.assert_array_equal(told.y, np.delete(np.arange(30.0), [3, 5]))
    assert told.draws.shape == (101, 28)
    with pytest.raises(ValueError, match=r"y of calibrate has shape \(29,\) and the predictions \(30,\)"):
        Calibration.of(draws, y[1:])
    with pytest.raises(ValueError, match="calibrate has 19 documents with a response; give 20 at least"):
        Calibration.of(draws, np.where(np.arange(30) < 19, 1.0, np.nan))
    several = {"y": predicted(draws, probabilities=np.ones((30, 2, 2)) / 2)}
    with pytest.raises(ValueError, match="the response is several classes"):
        _calibrated(SimpleNamespace(response=Response({})), several, {"y": y}, several, {"seed": 0})


@pytest.mark.parametrize("scale", [0.4, 2.5])
def test_calibrated_intervals_hold_what_they_promise_whatever_the_model_says(scale):
    """1000 documents set aside and 2000 new ones: the share held has a deviation of 0.02 at 50% and 0.012 at 90%."""
    rng = np.random.default_rng(3)
    spread = rng.uniform(0.5, 2, 3000)
    y = spread * rng.standard_t(4, 3000)
    draws = scale * spread * rng.normal(size=(200, 3000))
    told = Calibration.of(draws[:, :1000], y[:1000])
    for probability, limit in ((0.5, 0.1), (0.9, 0.06)):
        low, high = calibrated(draws[:, 1000:], probability, told)
        assert abs(np.mean((y[1000:] >= low) & (y[1000:] <= high)) - probability) < limit


def class_prediction(evidence, **told):
    number = len(evidence)
    made = predicted(np.zeros((50, number), np.int32), probabilities=softmax(evidence, axis=1), **told)
    return replace(made, evidence=evidence)


def test_the_temperature_that_made_the_classes_is_found():
    """4000 documents: known to 3%."""
    evidence = RNG.normal(0, 12, (4000, 3))
    shares = softmax(evidence / 6.0, axis=1)
    codes = (RNG.random((4000, 1)) > shares.cumsum(1)[:, :-1]).sum(1)
    assert abs(temperature(evidence, codes) / 6.0 - 1) < 0.16
    # all are right, and it is not 0: of n documents of a class n + 1 in n + 3 count for it
    few = np.tile(np.eye(3) * 5.0, (4, 1))
    degrees = temperature(few, few.argmax(1))
    right = np.exp(5 / degrees) / (np.exp(5 / degrees) + 2)
    assert right == pytest.approx(5 / 7, rel=1e-3)


def test_tempered_probabilities_keep_decisions_and_make_mean_and_draws():
    evidence = np.array([[0.0, 3.0, -1.0], [6.0, 0.0, 0.0], [0.0, 0.0, 2.0]]).repeat(200, 0)
    raw = class_prediction(evidence, losses=np.array([[0.0, 1.0, 2.0]]).repeat(600, 0))
    found = tempered(raw, 2.0, seed=1)
    shares = softmax(evidence / 2, axis=1)
    np.testing.assert_allclose(found.probabilities, shares)
    np.testing.assert_allclose(found.mean, shares @ [0, 1, 2])
    assert found.temperature == 2.0 and raw.temperature is None and (found.code == 0).all()  # losses decide
    assert found.draws.shape == (50, 600) and found.draws.dtype == raw.draws.dtype
    for row in (0, 200, 400):  # 10,000 draws: deviation 0.005
        drawn = np.bincount(found.draws[:, row : row + 200].ravel(), minlength=3) / 10_000
        np.testing.assert_allclose(drawn, shares[row], atol=0.03)
    assert list(raw.frame().columns) == ["label", "share(0)", "share(1)", "share(2)"]
    assert list(found.frame().columns) == ["label", "p(0)", "p(1)", "p(2)"]
    sure = replace(raw, evidence=None)  # probabilities of the model's own are tempered in their logarithms
    np.testing.assert_allclose(tempered(sure, 2.0, seed=1).probabilities, shares, rtol=1e-6)


def test_documents_set_aside_give_the_temperature_of_their_classes():
    evidence = np.tile([[0.0, 4.0], [4.0, 0.0]], (20, 1))
    codes = np.where(np.arange(40) % 8 < 2, [0.0, 1.0] * 20, [1.0, 0.0] * 20)  # a quarter is told wrongly
    codes[-4:] = np.nan
    told = class_prediction(evidence)
    assert from_aside(told, codes) == temperature(evidence[:36], codes[:36].astype(int))
    for y, words in (
        (codes[:39], r"y of calibrate has shape \(39,\)"),
        (np.where(np.arange(40) < 19, 0.0, np.nan), "calibrate has 19 documents with a response; give 20 at least"),
        (np.where(np.arange(40) == 2, 2.0, codes), "y of calibrate has the class 2; give 0 to 1"),
        (np.where(np.arange(40) == 2, -1.0, codes), "give 0 to 1"),
    ):
        with pytest.raises(ValueError, match=words):
            from_aside(told, y)


@pytest.mark.parametrize(("losses", "raised"), [(None, 2.0), (np.zeros((1, 2)), 1.5)])
def test_fitted_documents_give_a_temperature_that_is_raised(monkeypatch, losses, raised):
    """Those with a class and words, 500 at the most, once for a rule."""
    corpus = Corpus.from_counts(np.ones((700, 1), int) * (np.arange(700) > 9)[:, None], empty="keep")
    codes = np.where(np.arange(700) % 10 == 3, np.nan, np.arange(700) % 2)
    fit = SimpleNamespace(response=Response({"mood": codes}, several=True), corpus=corpus, temperatures={})
    asked = []

    def answer(some, *, rule, weights):
        rows = some.names.astype(int)
        asked.append((rows, rule))
        right = np.eye(2)[codes[rows].astype(int)] * np.where(rows % 3 == 0, -3.0, 3.0)[:, None]
        return {"mood": class_prediction(right, losses=losses)}

    monkeypatch.setattr(predicting, "predicted", answer)
    monkeypatch.setattr(predicting, "FoldIn", lambda fit, corpus: corpus)
    found = from_fitted(fit, "mood", "plug-in")
    ((rows, rule),) = asked
    assert rule == "plug-in" and len(set(rows)) == len(rows) == 500 and rows.min() > 9
    assert not np.isnan(codes[rows]).any()
    right = np.eye(2)[codes[rows].astype(int)] * np.where(rows % 3 == 0, -3.0, 3.0)[:, None]
    assert found == raised * temperature(right, codes[rows].astype(int))
    assert from_fitted(fit, "mood", "plug-in") == found and len(asked) == 1
    some = Response({"y": np.where(np.arange(700) < 29, 1.0, np.nan)})
    few = SimpleNamespace(response=some, corpus=corpus, temperatures={})
    assert from_fitted(few, "mood", "plug-in") is None and len(asked) == 1
    assert (probabilities.ABOVE_THE_WORDS, probabilities.UNDER_A_MARGIN) == (2.0, 1.5)


def test_each_response_is_calibrated_by_its_own_documents():
    draws = np.repeat(GRID[:, :1], 30, 1)
    told = {"a": predicted(draws), "b": predicted(draws * 3)}
    fit = SimpleNamespace(response=Response({}))
    y = {"b": np.full(30, 1.0), "a": np.full(30, 2.0)}
    found = _calibrated(fit, told, y, told, {"seed": 0})
    for name in "ab":
        np.testing.assert_array_equal(found[name].calibration.y, y[name])
        np.testing.assert_array_equal(found[name].calibration.draws, told[name].draws)
    with pytest.raises(ValueError, match="calibrate lacks the response 'b'; give a dict with 'a', 'b'"):
        _calibrated(fit, told, {"a": y["a"]}, told, {"seed": 0})


def test_documents_set_aside_are_predicted_as_the_new_ones_are(monkeypatch):
    """By the same rule and settings, and by the model's own numbers."""
    aside, told = Corpus.from_counts(np.ones((30, 2), int)), predicted(np.repeat(GRID[:, :1], 30, 1))
    settings, asked = {"rule": "plug-in", "seed": 5, "most_draws": 3, "num_burn": 2}, []
    monkeypatch.setattr(predicting, "predict", lambda fit, seen, **given: asked.append((seen, given)) or told)
    found = _calibrated(SimpleNamespace(response=Response({})), aside, np.arange(30.0), {"y": told}, settings)
    assert asked == [(aside, {"calibrate": False, **settings})]
    np.testing.assert_array_equal(found["y"].calibration.y, np.arange(30.0))


CORPUS = Corpus.from_counts(RNG.poisson(1.0, (11, 6)) + 1)


class Seen:
    """An engine that remembers what it was given; its prediction of a document is the document's number, 100 if seen."""

    def __init__(self, story, corpus, y, *, seed, shift=0.0, progress_bar=True):
        self.names, self.shift = set(corpus.names), shift
        assert len(y) == len(corpus) == 11 - len(set(CORPUS.names) - self.names)
        if isinstance(y, pd.Categorical):
            assert list(y.categories) == ["low", "mid", "high"]
        elif not isinstance(y[0], str):
            np.testing.assert_array_equal(np.asarray(y, float), corpus.names.astype(float))

    def predict(self, corpus, *, seed):
        number = corpus.names.astype(float) + self.shift
        drawn = (number + 100 * np.isin(corpus.names, list(self.names))) * np.ones((3, 1))
        shares = np.stack([number, 1 - number], 1)
        return Prediction(corpus.names, number, drawn, drawn[None], losses=shares, evidence=-shares)


def test_every_document_is_predicted_by_a_fit_that_has_not_seen_it():
    """And the predictions come back in the order of the documents."""
    found = inference.cross_predict(Seen, models.slda, CORPUS, np.arange(11.0), folds=4)
    np.testing.assert_array_equal(found.mean, np.arange(11))
    np.testing.assert_array_equal(found.draws, np.tile(np.arange(11.0), (3, 1)))
    np.testing.assert_array_equal(found.expected, np.tile(np.arange(11.0), (1, 3, 1)))
    np.testing.assert_array_equal(found.losses[:, 1], 1 - np.arange(11.0))
    np.testing.assert_array_equal(found.evidence[:, 0], -np.arange(11.0))
    assert found.names.tolist() == CORPUS.names.tolist() and found.probabilities is None
    levels = pd.Categorical(["low"] * 5 + ["high"] * 5 + ["mid"], ["low", "mid", "high"], ordered=True)
    for y in (levels, pd.Series(levels)):  # in the fold that leaves "mid" out it is a category still
        inference.cross_predict(Seen, models.slda, CORPUS, y, folds=11)
    for folds in (12, 1):
        with pytest.raises(
            ValueError, match=f"folds is {folds}; give a whole number from 2 to the number of documents"
        ):
            inference.cross_predict(Seen, models.slda, CORPUS, np.arange(11.0), folds=folds)


def test_settings_are_tried_in_all_combinations_and_the_best_comes_first():
    """Predictions are off by the shift: the squared error is its square."""
    y = np.arange(11.0)
    quiet = {"folds": 3, "progress_bar": False}
    table = inference.grid_search(Seen, models.slda, CORPUS, y, {"shift": [3.0, -1.0, 2.0]}, **quiet)
    assert table["shift"].tolist() == [-1.0, 2.0, 3.0] and table["error"].tolist() == [1.0, 4.0, 9.0]
    assert table.attrs["error"] == "mean squared error"
    for grid, settings, words in (
        ({}, {}, "grid is {}; give lists of values"),
        ({"shift": "12"}, {}, "give lists of values"),
        ({"shift": []}, {}, "give lists of values"),
        ({"shift": [1.0]}, {"shift": 2.0}, "shift is in the grid and given beside it"),
    ):
        with pytest.raises(ValueError, match=words):
            inference.grid_search(Seen, models.slda, CORPUS, y, grid, **quiet, **settings)


def test_a_log_score_is_the_mean_over_documents_and_the_highest_comes_first(monkeypatch):
    """Folds of unequal size, and documents without a response; the density of one is that of all chains and draws."""
    rng = np.random.default_rng(7)
    logs = [rng.normal(-2, 1, (2, 5, size)) for size in (3, 1, 7)]
    logs[2][..., :2] = np.nan
    folds = iter(logs)
    each = [("fit", np.arange(part.shape[-1])) for part in logs]
    monkeypatch.setattr(cross_validation, "_without_each", lambda *_: iter(each))
    monkeypatch.setattr(
        cross_validation, "pointwise", lambda *_, **__: SimpleNamespace(log_likelihood={"y": next(folds)})
    )
    corpus = Corpus.from_counts(np.ones((7, 2), int))
    found = cross_validation.log_score(None, None, corpus, np.zeros(7))
    densities = np.concatenate([np.exp(part).mean((0, 1)) for part in logs])
    assert found == pytest.approx(np.nanmean(np.log(densities)))
    monkeypatch.setattr(cross_validation, "log_score", lambda *_, weight, **__: -abs(weight - 4.0))
    grid = {"weight": [1.0, 4.0, 6.0]}
    table = cross_validation.grid_search(None, None, corpus, None, grid, score="log_score", progress_bar=False)
    assert table["weight"].tolist() == [4.0, 6.0, 1.0] and table["log_score"].tolist() == [0.0, -2.0, -3.0]


def test_errors_leave_out_documents_without_a_response():
    y = np.array([0.0, 1.0, np.nan, 1.0])
    numbers = predicted(np.array([[1.0, 1.0, 9.0, 3.0]]))
    assert error(numbers, y) == pytest.approx((1 + 0 + 4) / 3)
    shares = np.array([[0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.9, 0.1]])
    assert error(replace(numbers, probabilities=shares), y) == pytest.approx(1 / 3)
    assert error(replace(numbers, mean=np.array([0.6, 0.7, 0.0, 0.4]), yes_or_no=True), y) == pytest.approx(2 / 3)
