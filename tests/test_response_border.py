"""Responses that cannot be: one sentence that names the argument, the value and the fix, whichever engine is asked."""

from __future__ import annotations

import re
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import stories

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.response import in_order
from topiczoo.models import draw_words, slda_glm

COUNTS = stories.small()[0].counts
CORPUS = Corpus.from_counts(COUNTS, covariates={
    "age": np.arange(12.0), "town": ["a", "b"] * 6, "income": [1.0, np.nan] * 6,
})  # fmt: skip
THREE = np.arange(12) % 3.0
LABELS = np.array(["bad", "good", "ok"])[np.arange(12) % 3]
TWO_COLUMNS = np.stack([THREE, THREE**2], 1)
OUTSIDE = "y of document '3' is {}, outside the support of the site 'y' .{}.; "


def but(value, rest=THREE):
    """The responses with another fourth one."""
    return np.where(np.arange(12) == 3, value, rest)


def outside(value, family, fix):
    return OUTSIDE.format(value, family) + fix


CASES = {
    "poisson, negative": (but(-1), {"response": "poisson"}, outside(-1.0, "Poisson", "give whole numbers from 0, or")),
    "poisson, fraction": (but(0.5), {"response": "poisson"}, outside(0.5, "Poisson", "give whole numbers from 0")),
    "negative binomial, negative": (
        but(-2), {"response": "negative_binomial"}, outside(-2.0, "NegativeBinomial2", "give whole numbers from 0"),
    ),
    "negative binomial, fraction": (
        but(1.5), {"response": "negative_binomial"}, outside(1.5, "NegativeBinomial2", "give whole numbers from 0"),
    ),
    "binomial, negative": (
        but(-1), {"response": "binomial", "options": {"total_count": 7}},
        outside(-1.0, "BinomialLogits", "give whole numbers from 0 to 7, or change"),
    ),
    "binomial, fraction": (
        but(2.5), {"response": "binomial", "options": {"total_count": 7}},
        outside(2.5, "BinomialLogits", "give whole numbers from 0 to 7, or change"),
    ),
    "binomial, above": (
        but(9), {"response": "binomial", "options": {"total_count": 7}},
        outside(9.0, "BinomialLogits", "give whole numbers from 0 to 7, set options={'total_count': 9}, or change"),
    ),
    "gamma, zero": (but(0, THREE + 1), {"response": "gamma"}, outside(0.0, "Gamma", "give numbers above 0")),
    "gamma, negative": (but(-1, THREE + 1), {"response": "gamma"}, outside(-1.0, "Gamma", "give numbers above 0")),
    "inverse Gaussian, zero": (
        but(0, THREE + 1), {"response": "inverse_gaussian"}, outside(0.0, "InverseGaussian", "give numbers above 0"),
    ),
    "weibull, zero": (but(0, THREE + 1), {"response": "weibull"}, outside(0.0, "Weibull", "give numbers above 0")),
    "logit, two": (but(2, THREE > 0), {"response": "logit"}, outside(2.0, "BernoulliLogits", "give 0 or 1")),
    "probit, half": (but(0.5, THREE > 0), {"response": "probit"}, outside(0.5, "Bernoulli.*", "give 0 or 1")),
    "logit, three labels": (LABELS, {"response": "logit"}, "y of document '2' is 'ok', outside .*; give 2 labels"),
    "softmax, out of range": (
        but(7), {"response": "softmax", "outputs": 5},
        outside(7.0, "CategoricalLogits", "give whole numbers from 0 to 4, set outputs=8, or change"),
    ),
    "softmax, fraction": (
        but(0.5), {"response": "softmax", "outputs": 3},
        outside(0.5, "CategoricalLogits", "give whole numbers from 0 to 2, or change"),
    ),
    "softmax, more labels than outputs": (
        LABELS, {"response": "softmax", "outputs": 2}, "is 'ok', outside .* give 2 labels, set outputs=3, or",
    ),
    "ordered, out of range": (
        but(7), {"response": "ordered"},
        outside(7.0, "OrderedLogistic", "give whole numbers from 0 to 4, set options={'num_classes': 8}, or change"),
    ),
    "ordered, a gap": (
        np.where(THREE == 1, 3, THREE), {"response": "ordered"},
        "y has the ordered class 3 but no document of class 1; number the classes without gaps",
    ),
    "ordered, an unused category": (
        pd.Categorical(LABELS, ["bad", "fair", "good", "ok"]), {"response": "ordered"},
        "y has the ordered class 'ok' but no document of class 'fair'; leave its category out",
    ),
    "logit, one class": (np.ones(12), {"response": "logit"}, r"y is constant \(1\).*give one that varies"),
    "probit, one label": (np.array([True] * 12), {"response": "probit"}, r"y is constant \(True\)"),
    "softmax, one class": (np.ones(12), {"response": "softmax", "outputs": 3}, r"y is constant \(1\)"),
    "ordered, one class": (np.zeros(12), {"response": "ordered"}, r"y is constant \(0\)"),
    "normal, constant": (np.full(12, 2.5), {}, r"y is constant \(2.5\)"),
    "normal, a constant column": (but(0, np.zeros((2, 12))).T, {"outputs": 2}, r"y\[:, 0\] is constant \(0\)"),
    "normal, labels": (LABELS, {}, "y is not numeric .*'bad'.*; labels are for one response that is a class"),
    "unknown response": (THREE, {"response": "possion"}, "response is 'possion', which is none of .*'poisson'"),
    "no response": (THREE, {"response": None}, "response is None; give one of 'normal', .*, or a function"),
    "unknown option": (
        THREE, {"response": "student_t", "options": {"dof": 3}},
        "options has 'dof', which the response 'student_t' does not take; it takes 'df'",
    ),
    "option of none": (THREE, {"response": "poisson", "options": {"df": 3}}, "it takes none: leave options out"),
    "options that are no dict": (THREE, {"options": 3}, "options is 3; give a dict"),
    "softmax without outputs": (THREE, {"response": "softmax"}, "outputs is missing for the response 'softmax'"),
    "fractional outputs": (THREE, {"response": "softmax", "outputs": 2.5}, "outputs is 2.5; give a whole number"),
    "outputs of poisson": (THREE, {"response": "poisson", "outputs": 2}, "outputs is 2, but .*'poisson' has one"),
    "outputs without columns": (THREE, {"outputs": 1}, "y has no columns and outputs is 1; leave outputs out"),
    "columns without outputs": (TWO_COLUMNS, {}, "y has 2 columns and outputs is None; give outputs=2"),
    "columns of classes": (
        TWO_COLUMNS, {"response": "softmax", "outputs": 3}, "y has 2 columns for the response 'softmax'; give one",
    ),
    "several responses": ({"y": THREE}, {}, "y is a dict of 'y', but slda_glm has one response; give an array"),
    "covariate that is not there": (
        THREE, {"covariates": ["height"]},
        r"covariates has 'height', which is no numeric column .*\(there are 'age', 'income'\); add it",
    ),
    "covariate of text": (THREE, {"covariates": ["age", "town"]}, "covariates has 'town', which is no numeric column"),
    "covariate with gaps": (
        THREE, {"covariates": ["income"]}, "has 'income', which the story 'slda_glm' reads and which is missing for",
    ),
    "bare covariate": (THREE, {"covariates": "age"}, r"covariates is the bare string 'age'; give a list, \['age'\]"),
}  # fmt: skip


# one of each kind in any case; what other families say of the same is compiled by the longest tests
LONGEST = {
    "poisson, fraction", "negative binomial, negative", "negative binomial, fraction", "binomial, negative",
    "binomial, fraction", "gamma, negative", "inverse Gaussian, zero", "weibull, zero", "probit, half", "softmax, fraction",
    "softmax, more labels than outputs", "ordered, out of range", "probit, one label", "softmax, one class",
    "ordered, one class", "logit, one class",
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.longest] * (case in LONGEST)) for case in CASES]
)
def test_one_clear_sentence(case):
    y, arguments, words = CASES[case]
    with pytest.raises(ValueError, match=words) as caught:
        inference.gibbs(slda_glm, CORPUS, y, num_topics=2, **arguments)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("engine", "case"), [("nuts", "ordered, a gap"), ("svi", "unknown response"), ("vem", "covariate of text")]
)
def test_every_engine_says_the_same(engine, case):
    y, arguments, words = CASES[case]
    with pytest.raises(ValueError, match=words):
        getattr(inference, engine)(slda_glm, CORPUS, y, num_topics=2, **arguments)


def test_more_outputs_than_classes_and_constant_totals_are_fine():
    def story(corpus, y=None, *, num_topics=2):
        beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics)
        zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
        total, hits = (10, None) if y is None else (y["total"], y["hits"])
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("hits", dist.Binomial(total, logits=zbar @ eta), obs=hits)

    assert read(slda_glm, CORPUS, THREE, {"response": "softmax", "outputs": 5}).observed == ("y",)
    y = {"hits": THREE, "total": np.full(12, 10.0)}
    assert read(story, CORPUS, y, {}).observed == ("hits",)
    with pytest.raises(ValueError, match=r"'3' is 2.0, 1.0, outside .*; give whole numbers from 0 to 1, or change"):
        read(story, CORPUS, {"hits": but(2), "total": but(1, y["total"])}, {})
    with pytest.raises(ValueError, match=r"y\['hits'\] is constant \(1\)"):
        read(story, CORPUS, {**y, "hits": np.ones(12)}, {})
    with pytest.raises(ValueError, match=r"y\['hits'\] is not numeric .*; labels are for one response"):
        read(story, CORPUS, {**y, "hits": LABELS}, {})


DATES = np.datetime64("2024-01-01") + np.arange(12)
NO_NUMBERS = {
    "dates": (DATES, "^y holds dates; give numbers, e.g. days since the first.$"),
    "dates of pandas": (pd.Series(DATES).dt.tz_localize("UTC"), "^y holds dates;"),
    "durations": (DATES - DATES[0], "^y holds durations; give numbers"),
    "complex": (THREE + 1j, "^y holds complex numbers; give real ones"),
    "dates in a column": (pd.DataFrame({"a": THREE, "b": DATES}), "^y holds dates;"),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_dates_and_complex_numbers_are_no_responses(case):
    y, words = NO_NUMBERS[case]
    with pytest.raises(ValueError, match=words):
        read(slda_glm, CORPUS, y, {})


def test_an_index_of_names_is_the_order_of_the_documents():
    named = Corpus.from_counts(COUNTS, names=[f"review {i}" for i in range(12)])
    y, shuffled = pd.Series(np.arange(12.0), named.names), np.random.default_rng(0).permutation(12)
    np.testing.assert_array_equal(in_order(named, y.iloc[shuffled]), y)
    np.testing.assert_array_equal(in_order(named, {"a": y.iloc[shuffled].to_frame()})["a"][0], y)
    np.testing.assert_array_equal(read(two_columns, named, pd.DataFrame({0: y, 1: y}).iloc[shuffled], {}).y[:, 0], y)
    with pytest.raises(ValueError, match=r"^y has 'review 12' in its index, .*; give .*, or y.to_numpy\(\) for rows"):
        in_order(named, y.rename({"review 3": "review 12"}))
    with pytest.raises(ValueError, match=r"^y has 'review 12' in its index"):
        read(slda_glm, named, y.rename({"review 3": "review 12"}), {})


def test_row_numbers_and_other_names_are_taken_row_by_row():
    shuffled = np.random.default_rng(0).permutation(12)
    filtered = pd.Series(THREE, 2 * np.arange(12))  # of a frame, some of whose rows were left out
    of_shuffled = pd.Series(THREE, shuffled)  # of a frame that was shuffled before its texts were read
    of_others = pd.Series(THREE, [f"user {i}" for i in range(12)])
    named = Corpus.from_counts(COUNTS, names=[f"review {i}" for i in range(12)])
    for corpus, y in (
        (CORPUS, filtered),
        (CORPUS, of_shuffled),
        (CORPUS, of_others),
        (named, of_others),
        (named, filtered),
    ):
        assert in_order(corpus, y) is y
    part = CORPUS[
        shuffled[:6]
    ]  # its documents are named by their old numbers, which a series may have in another order
    y = pd.Series(THREE, np.arange(12)).iloc[np.sort(shuffled[:6])]
    np.testing.assert_array_equal(in_order(part, y), THREE[shuffled[:6]])


def two_columns(corpus, y=None):
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(jnp.zeros((corpus.num_documents, 2)), 1.0).to_event(1), obs=y)


def around_0(corpus, y=None, *, scale=1.0):
    """Responses that the priors expect within a few scales of 0."""
    mean = numpyro.sample("mean", dist.Cauchy(0, scale))
    spread = numpyro.sample("spread", dist.HalfCauchy(scale))
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(mean, spread), obs=y)


FAR = {
    "shifted": (
        around_0,
        THREE + 1e6,
        {},
        r"^y is 1e\+06, .*expect.*; standardise it: y = \(y - y.mean\(\)\) / y.std\(\).$",
    ),
    "stretched": (
        around_0,
        but(np.nan, THREE * 1e6 - 1e6),
        {},
        r"y = \(y - np.nanmean\(y\)\) / np.nanstd\(y\).$",
    ),
    "expected": (around_0, THREE * 1e6, {"scale": 1e6}, ""),
    "near": (around_0, THREE + 10, {}, ""),
    "one column": (two_columns, np.stack([THREE, THREE + 1e6], 1), {}, r"^y is 1e\+06, .*y.std\(0\).$"),
}


@pytest.mark.parametrize("case", FAR)
def test_a_response_far_from_what_the_priors_expect_is_told_to_be_standardised(case):
    story, y, arguments, words = FAR[case]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(story, CORPUS, y, arguments)
    said = [str(warning.message) for warning in caught]
    assert len(said) == bool(words)
    assert all(re.search(words, sentence) for sentence in said)


def test_a_response_of_another_shape_is_refused():
    def story(corpus, y=None, *, num_topics=2):
        beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics)
        zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", dist.Normal((zbar @ eta)[:, None], 1.0).to_event(1), obs=y)

    with pytest.raises(
        ValueError, match=r"site 'y' values of shape \(12,\), but its distribution has the shape \(12, 1\)"
    ):
        inference.gibbs(story, CORPUS, THREE)
