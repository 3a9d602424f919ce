"""Classes by their names: strings, booleans and categories, known to the fit, its file and its scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import stories

from topiczoo import diagnostics, inference
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.response import codes_of, labels_as_codes
from topiczoo.models import slda_glm

CORPUS = stories.small()[0]
CODES = np.where(np.arange(12) == 5, np.nan, np.arange(12) % 3)
NAMES = np.array(["bad", "good", "ok"])
LABELS = [None if np.isnan(code) else str(NAMES[int(code)]) for code in CODES]
FEW = {"most_draws": 5, "num_burn": 1}

KINDS = {
    "strings": (["b", "a", None, "c"], [1, 0, np.nan, 2], ["a", "b", "c"]),
    "an array of strings": (np.array(["no", "yes"]), [0, 1], ["no", "yes"]),
    "a series": (pd.Series(["b", np.nan, "a"]), [1, np.nan, 0], ["a", "b"]),
    "booleans": (np.array([True, False]), [1, 0], [False, True]),
    "booleans, some missing": ([True, None, True], [1, np.nan, 1], [False, True]),
    "pandas booleans": (pd.Series([False, None], dtype="boolean"), [0, np.nan], [False, True]),
    "ordered categories": (pd.Categorical(["low", None, "high"], ["low", "high"], ordered=True), [0, np.nan, 1],
                           ["low", "high"]),
    "categories nobody has": (pd.Categorical(["c", "a"], ["c", "b", "a"]), [0, 2], ["c", "b", "a"]),
    "intervals": (pd.cut([1.0, 2.0, 3.0], [0, 2, 4]), [0, 0, 1], ["(0, 2]", "(2, 4]"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_labels_become_codes(kind):
    y, expected, names = KINDS[kind]
    codes, classes = labels_as_codes(y)
    np.testing.assert_array_equal(codes, expected)
    assert classes.tolist() == names
    np.testing.assert_array_equal(codes_of(classes, y), expected)


@pytest.mark.parametrize(
    "y",
    [None, [1.0, np.nan], np.array([0, 1]), [None, None], ["a", 1], pd.Categorical([2, 1]), {"y": ["a", "b"]}],
    ids=str,
)
def test_numbers_and_what_is_neither_stay_as_they_are(y):
    codes, classes = labels_as_codes(y)
    assert codes is y and classes is None
    assert codes_of(NAMES, y) is y


def test_a_response_that_is_no_class_reads_what_it_can_as_numbers():
    for y in (CODES > 1, [str(code) for code in CODES], pd.Categorical(np.arange(12) % 3 + 1)):
        graph = read(slda_glm, CORPUS, y, {"num_topics": 2})
        assert graph.response.classes is None
        np.testing.assert_array_equal(graph.y, np.asarray(y, float))


def test_strings_of_an_ordered_response_say_their_order():
    with pytest.warns(UserWarning, match="taken in the order 'bad' < 'good' < 'ok'; for another give pd.Categorical"):
        read(slda_glm, CORPUS, LABELS, {"num_topics": 2, "response": "ordered"})


@pytest.fixture(scope="module")
def fits():
    """The same fit from labels and from their codes; what is read is what every engine hands on."""
    rng = np.random.default_rng(0)
    draws = {"beta": rng.dirichlet(np.ones(9), (1, 5, 2)), "eta": rng.normal(size=(1, 5, 2, 3))}
    draws = {name: value.astype(np.float32) for name, value in draws.items()}
    made = []
    for y in (LABELS, CODES):
        graph = read(slda_glm, CORPUS, y, {"response": "softmax", "outputs": 3, "num_topics": 2})
        made.append(inference.Fit.of(graph, draws, engine="made"))
    return made


def test_a_fit_knows_its_classes_and_so_does_its_file(fits, tmp_path):
    named, coded = fits
    np.testing.assert_array_equal(named.y, coded.y)
    assert named.classes.tolist() == NAMES.tolist() and coded.classes is None
    loaded = inference.load(named.save(tmp_path / "named.nc"))
    assert loaded.classes.tolist() == NAMES.tolist() and loaded.classes.dtype == named.classes.dtype
    assert inference.load(coded.save(tmp_path / "coded.nc")).classes is None
    assert diagnostics.align(named).classes.tolist() == NAMES.tolist()


@pytest.mark.slow
def test_scores_and_checks_take_labels_or_codes(fits):
    named, _ = fits
    by_label = diagnostics.scores(named, CORPUS, LABELS, **FEW)
    pd.testing.assert_frame_equal(by_label, diagnostics.scores(named, CORPUS, CODES, **FEW))
    checked = diagnostics.check_response(named, CORPUS, pd.Series(LABELS))
    np.testing.assert_array_equal(checked["observed_data"]["y"], CODES[~np.isnan(CODES)])


def test_labels_that_training_has_not_seen_are_refused(fits):
    named, coded = fits
    strange = ["awful", *LABELS[1:]]
    sentence = "y has the label 'awful', which the fit has not seen; write it as one of 'bad', 'good', 'ok', or None"
    for refuse in (diagnostics.scores, diagnostics.check_response, inference.log_likelihood):
        with pytest.raises(ValueError, match=sentence):
            refuse(named, CORPUS, strange)
    with pytest.raises(ValueError, match=sentence):
        diagnostics.report(named, test=CORPUS, y_test=strange)
    with pytest.raises(ValueError, match="y is not numeric"):
        diagnostics.scores(coded, CORPUS, LABELS)
    with pytest.raises(ValueError, match=r"y of document '0' is 3.0, outside .* give whole numbers from 0 to 2"):
        diagnostics.scores(named, CORPUS, np.where(np.arange(12) == 0, 3, CODES))
