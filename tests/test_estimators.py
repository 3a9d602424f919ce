"""Estimators in the company of scikit-learn: pipelines, grid searches, pickles, frames, and the fit behind them.

Most tests share one shape of documents and one story, so that programs are compiled once.
"""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import joblib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from fits import fit_of
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from test_waiting import compilations

import topiczoo
from topiczoo import diagnostics, estimators, inference, models
from topiczoo.corpora import Corpus
from topiczoo.estimators import (
    LDA,
    MedLDAClassifier,
    MedLDARegressor,
    MixtureOfCategoricals,
    SAGEClassifier,
    SLDAClassifier,
    SLDARegressor,
    SSTMClassifier,
    SSTMRegressor,
    StoryClassifier,
    StoryRegressor,
)

SHORT = {"num_warmup": 2, "num_samples": 3, "num_chains": 1}
BY_VEM = {"engine": "vem", "engine_options": {"num_iterations": 3, "num_draws": 5}}
rng = np.random.default_rng(0)
X = rng.poisson(1.0, (60, 12)) + (np.arange(12) == 0)  # every document has a word
Y = 100 + 8 * np.round(rng.normal(size=60), 2)
NEW = X[30:]
TERMS = [f"term{i:02d}" for i in range(12)]


def regressor(**options):
    return SLDARegressor(3, engine_options=SHORT, **{"random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X[:30], Y[:30])


def test_names_are_found_in_the_package_and_all_are_there():
    assert set(estimators.__all__) == set(topiczoo._ESTIMATORS) <= set(topiczoo.__all__)
    assert topiczoo.SLDARegressor is SLDARegressor


@pytest.mark.slow
def test_an_estimator_finds_what_its_engine_finds_in_the_units_of_y(fitted):
    shift, scale = Y[:30].mean(), Y[:30].std()
    y = (Y[:30] - shift) / scale
    fit = inference.gibbs("slda_glm", Corpus.from_counts(X[:30]), y, seed=0, num_topics=3, progress_bar=False, **SHORT)
    for name, draws in fit.draws.items():
        np.testing.assert_array_equal(fitted.fit_.draws[name], draws)
    np.testing.assert_array_equal(fitted.components_, fit.topic_terms(0))
    prediction = fit.predict(Corpus.from_counts(NEW), alike=True)
    mean, deviation = fitted.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, shift + scale * prediction.mean, rtol=1e-6)
    np.testing.assert_allclose(deviation, scale * prediction.draws.std(0), rtol=1e-5)
    np.testing.assert_allclose(mean, fitted.predict(NEW))
    assert fitted.fit_.info["standardised"] == (shift, scale)
    np.testing.assert_array_equal(fitted.transform(NEW), fit.transform(Corpus.from_counts(NEW), alike=True))


def test_predictions_and_their_deviations_are_in_the_units_of_y_and_of_the_predictive_draws(monkeypatch):
    """The deviation is that of draws, noise and all, not that of what is expected at each."""
    draws = np.array([[0.0, 1.0], [2.0, 1.5], [4.0, -1.0]])
    told = SimpleNamespace(mean=draws.mean(0), draws=draws, expected=np.array([[[1.0, 0.4]], [[3.0, 0.6]]]))
    made = SLDARegressor()
    made.fit_ = SimpleNamespace(predict=lambda corpus, alike: told, info={"standardised": (10.0, 3.0)})
    monkeypatch.setattr(SLDARegressor, "_documents", lambda self, X: X)
    mean, deviation = made.predict(None, return_std=True)
    np.testing.assert_allclose(mean, 10 + 3 * draws.mean(0))
    np.testing.assert_allclose(deviation, 3 * draws.std(0))


def test_several_probits_side_by_side_are_divided_by_their_sum_document_by_document():
    made = SSTMClassifier()
    made.classes_ = np.array(["a", "b", "c"])
    mean = np.array([[0.2, 0.6, 0.2], [0.1, 0.1, 0.3]])
    found = made._shares(SimpleNamespace(mean=mean))
    np.testing.assert_allclose(found, mean / np.array([[1.0], [0.5]]))


def test_the_same_random_state_predicts_the_same_and_another_does_not(fitted):
    again = regressor().fit(X[:30], Y[:30]).predict(NEW)
    np.testing.assert_array_equal(again, fitted.predict(NEW))
    assert not np.array_equal(regressor(random_state=1).fit(X[:30], Y[:30]).predict(NEW), again)
    by_generator = [
        regressor(random_state=np.random.RandomState(seed)).fit(X[:30], Y[:30]).predict(NEW) for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(*by_generator[:2])
    assert not np.array_equal(*by_generator[1:])


@pytest.mark.parametrize(
    "kind",
    [
        sparse.csr_matrix,
        sparse.csr_array,
        sparse.csc_array,
        sparse.coo_array,
        np.asfortranarray,
        np.float32,
        pd.DataFrame,
    ],
)
def test_counts_of_any_kind_are_the_same_counts(fitted, kind):
    other = regressor().fit(kind(X[:30]), Y[:30])
    np.testing.assert_array_equal(other.components_, fitted.components_)
    np.testing.assert_array_equal(other.predict(kind(NEW)), fitted.predict(NEW))


def test_columns_of_a_frame_are_the_vocabulary(fitted):
    frame = pd.DataFrame(X, columns=TERMS, index=[f"row{i}" for i in range(60)])
    named = regressor().set_output(transform="pandas").fit(frame[:30], pd.Series(Y[:30], frame.index[:30]))
    assert named.feature_names_in_.tolist() == named.fit_.vocabulary.tolist() == TERMS
    shares = named.transform(frame[30:])
    assert shares.index.equals(frame.index[30:])
    assert shares.columns.tolist() == named.get_feature_names_out().tolist() == [f"sldaregressor{k}" for k in range(3)]
    np.testing.assert_array_equal(shares, fitted.transform(NEW))
    assert set(named.topics(2)["term"]) <= set(TERMS)
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(frame[TERMS[::-1]])
    spread = frame.astype(pd.SparseDtype(int, 0))
    np.testing.assert_array_equal(regressor().fit(spread[:30], Y[:30]).predict(spread[30:]), fitted.predict(NEW))


def test_a_pipeline_takes_texts_and_names_its_topics(fitted):
    texts = [" ".join(np.repeat(TERMS, row)) for row in X]
    pipeline = make_pipeline(CountVectorizer(), regressor()).fit(texts[:30], Y[:30])
    np.testing.assert_array_equal(pipeline.predict(texts[30:]), fitted.predict(NEW))
    assert pipeline[:-1].get_feature_names_out().tolist() == TERMS
    table = pipeline[-1].topics(4, pipeline[:-1].get_feature_names_out())
    places = [TERMS.index(term) for term in table["term"]]
    np.testing.assert_allclose(table["probability"], fitted.components_[table["topic"], places], rtol=1e-6)
    assert pipeline[-1].fit_.vocabulary.tolist() == [str(i) for i in range(12)]  # as it was


def test_a_grid_search_compiles_once():
    """Four candidates in two folds: the first fit and prediction compile, and no other."""
    regressor().fit(X[:30], Y[:30]).predict(X[30:])
    search = GridSearchCV(regressor(), {"alpha": [0.1, 0.4], "scale": [1.0, 3.0]}, cv=2, refit=False)
    with compilations() as found:
        search.fit(X, Y)
        scores = cross_val_score(regressor(), X, Y, cv=2)
    assert found == []
    assert len(set(search.cv_results_["mean_test_score"])) == 4 and np.isfinite(scores).all() and len(scores) == 2


def test_parameters_are_seen_cloned_and_set():
    model = regressor(alpha="learned")
    assert clone(model).get_params() == model.get_params()
    model.set_params(n_components=5, engine_options={"num_chains": 7})
    assert model.n_components == 5 and model.engine_options == {"num_chains": 7}
    assert set(inspect.signature(SLDARegressor).parameters) == set(model.get_params())


def test_a_pickle_predicts_the_same(fitted, tmp_path):
    there = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(there.predict(NEW), fitted.predict(NEW))
    np.testing.assert_array_equal(there.transform(NEW), fitted.transform(NEW))
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).predict(NEW), fitted.predict(NEW))
    fitted.fit_.save(tmp_path / "fit.nc")
    saved = inference.load(tmp_path / "fit.nc").predict(Corpus.from_counts(NEW), alike=True)
    shift, scale = fitted.fit_.info["standardised"]
    np.testing.assert_allclose(shift + scale * saved.mean, fitted.predict(NEW), rtol=1e-6)


def test_what_compares_a_guide_with_the_posterior_stays_in_a_copy_and_out_of_a_pickle(fitted):
    fit = copy.copy(fitted.fit_)
    fit.compiled["something"] = "compiled"
    fit.importance_ratios = lambda: (np.ones(3), None)  # no pickle takes a function without a name
    assert copy.copy(fit).importance_ratios is fit.importance_ratios and copy.copy(fit).compiled == {}
    assert pickle.loads(pickle.dumps(fit)).importance_ratios is None
    assert fitted.fit_.importance_ratios is None


def test_rows_without_a_word_are_left_out_and_expected_by_the_prior(fitted):
    wordless = np.zeros((1, 12), int)
    holed = regressor().fit(np.insert(X[:30], 7, 0, axis=0), np.insert(Y[:30], 7, Y[:30].mean()))
    np.testing.assert_allclose(holed.components_, fitted.components_, rtol=1e-5)
    assert len(holed.fit_.corpus) == 30 and holed.fit_.response.y.shape == (30,)
    asked = np.concatenate([NEW[:29], wordless])
    np.testing.assert_allclose(fitted.transform(asked)[-1], 1 / 3, rtol=1e-6)  # alpha is the same of all topics
    np.testing.assert_allclose(fitted.predict(asked)[:29], fitted.predict(NEW)[:29])
    shift, scale = fitted.fit_.info["standardised"]
    level = fitted.fit_.draws["eta"].mean()
    np.testing.assert_allclose(fitted.predict(asked)[-1], shift + scale * level, rtol=1e-5)


def test_responses_that_have_a_scale_of_their_own_are_not_standardised(monkeypatch):
    given = told(monkeypatch, SLDARegressor(3, response="poisson"), np.arange(60))
    np.testing.assert_array_equal(given["y"], np.arange(60))
    given = told(monkeypatch, StoryRegressor("slda"), Y)
    np.testing.assert_array_equal(given["y"], Y)
    given = told(monkeypatch, StoryRegressor("slda", standardise=True), Y)
    np.testing.assert_allclose([given["y"].mean(), given["y"].std()], [0, 1], atol=1e-12)


class Stop(Exception):
    """The engine has been called."""


def told(monkeypatch, estimator, y=None):
    """What an estimator gives its engine, which does not run."""
    found = {}

    def noting(engine):
        @functools.wraps(engine)
        def note(story, corpus, y=None, **given):
            found.update(story=story, corpus=corpus, y=y, **given)
            raise Stop

        return note

    for name in ("gibbs", "vem"):
        monkeypatch.setattr(inference, name, noting(getattr(inference, name)))
    with pytest.raises(Stop):
        estimator.fit(X, y)
    return found


TWO, THREE = np.arange(60) % 2, np.array(["low", "middle", "high"])[np.arange(60) % 3]
COMMON = {"engine": "vem", "engine_options": {"num_draws": 7}, "random_state": 11}
WORDS = {"n_components": 4, "alpha": 0.3, "gamma": 0.2}
CASES = [
    (LDA(**WORDS), None, models.lda, {}),
    (MixtureOfCategoricals(**WORDS), None, models.mixture, {}),
    (SLDARegressor(**WORDS, response="student_t", scale=3.0), Y, models.slda_glm, {"response": "student_t", "scale": 3.0}),
    (SLDAClassifier(**WORDS, scale=3.0), TWO, models.slda_glm, {"response": "logit", "scale": 3.0}),
    (SLDAClassifier(**WORDS), THREE, models.slda_glm, {"response": "softmax", "outputs": 3, "scale": 2.0}),
    (SLDAClassifier(**WORDS, response="probit"), TWO, models.slda_glm, {"response": "probit", "scale": 2.0}),
    (
        SLDAClassifier(**WORDS, response="ordered"), THREE, models.slda_glm,
        {"response": "ordered", "options": {"num_classes": 3}, "scale": 2.0},
    ),
    (
        SSTMRegressor(**WORDS, prior="horseshoe", nu=0.5, sigma=0.6), Y, models.sstm,
        {"prior": "horseshoe", "nu": 0.5, "sigma": 0.6},
    ),
    (SSTMClassifier(**WORDS, nu=0.5), TWO, models.sstm, {"response": "probit", "prior": "laplace", "nu": 0.5}),
    (
        SSTMClassifier(**WORDS), THREE, models.sstm,
        {"response": "probit", "prior": "laplace", "nu": None, "outputs": 3},
    ),
    (
        MedLDARegressor(**WORDS, margin="partial", weight=2.0, epsilon=0.1), Y, models.medlda,
        {"margin": "partial", "weight": 2.0, "epsilon": 0.1, "prior": "dense", "nu": 1.0},
    ),
    (
        MedLDAClassifier(**WORDS, weight=2.0, cost=3.0, nu=0.5), THREE, models.medlda,
        {"margin": "classes", "outputs": 3, "weight": 2.0, "cost": 3.0, "prior": "dense", "nu": 0.5},
    ),
    (
        MedLDAClassifier(**WORDS, margin="binary"), TWO, models.medlda,
        {"margin": "binary", "weight": 1.0, "cost": 16.0, "prior": "dense", "nu": 1.0},
    ),
    (SAGEClassifier(scale=2.0), THREE, models.sage_nb, {"outputs": 3, "scale": 2.0}),
    (
        SAGEClassifier(4, prior="laplace", alpha=0.3), TWO, models.sage_facets,
        {"num_topics": 4, "prior": "laplace", "alpha": 0.3, "outputs": 2, "scale": 3.0},
    ),
    (StoryRegressor("sstm", 4, story_options={"nu": 0.5}), Y, models.sstm, {"num_topics": 4, "nu": 0.5}),
    (
        StoryClassifier(models.disclda, 8, story_options={"shared": 2}), THREE, models.disclda,
        {"num_topics": 8, "shared": 2, "outputs": 3},
    ),
]  # fmt: skip


@pytest.mark.parametrize("estimator, y, story, own", CASES, ids=lambda case: type(case).__name__)
def test_every_parameter_reaches_the_story_or_its_engine(monkeypatch, estimator, y, story, own):
    given = told(monkeypatch, clone(estimator).set_params(**COMMON), y)
    if "gamma" in estimator.get_params():
        own = {**own, "num_topics": 4, "alpha": 0.3, "gamma": 0.2}
    background = given.pop("background", None)
    assert (background is not None) == ("background" in inspect.signature(story).parameters)
    assert given.pop("story") is story and given.pop("seed") == 11 and given.pop("progress_bar") is False
    assert given.pop("num_draws") == 7 and len(given.pop("corpus")) == 60
    response = given.pop("y")
    assert given == own
    if y is THREE and not isinstance(estimator, SSTMClassifier):
        assert response.categories.tolist() == ["high", "low", "middle"] and response.tolist() == THREE.tolist()
    if estimator.__sklearn_tags__().target_tags.required and "response_weight" in estimator.get_params():
        weighed = told(monkeypatch, clone(estimator).set_params(**COMMON, response_weight=3.0), y)
        assert weighed["response_weight"] == 3.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "labels",
    [
        ["no", "yes", "perhaps"],
        [False, True],
        pd.Categorical(["b", "a"]),
        *(pytest.param(labels, marks=pytest.mark.longest) for labels in ([3, 7, 11], [2.0, 3.0, 5.0])),
    ],
    ids=str,
)
def test_labels_of_any_kind_come_back(labels):
    places = np.arange(60) % len(labels)
    y = labels[places] if isinstance(labels, pd.Categorical) else np.array(labels)[places]
    model = SAGEClassifier(**BY_VEM, random_state=0).fit(X[:30], y[:30])
    assert model.classes_.tolist() == sorted(np.asarray(labels).tolist())
    np.testing.assert_array_equal(model.components_, model.fit_.mean("deviation", chain=0))
    found, shares = model.predict(NEW), model.predict_proba(NEW)
    assert found.dtype == model.classes_.dtype and set(found.tolist()) <= set(model.classes_.tolist())
    np.testing.assert_array_equal(model.classes_[shares.argmax(1)], found)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    assert model.score(NEW, y[30:]) == np.mean(found == np.asarray(y[30:]))
    assert model.fit_.classes.tolist() == [str(label) for label in model.classes_.tolist()]


@pytest.mark.parametrize("number", [2, 3])
def test_classes_that_words_tell_apart_are_told_apart(number):
    """Each class has terms of its own, five words a document: whoever confounds classes is wrong in most of them."""
    codes = np.arange(60) % number
    counts = 5 * (np.arange(12) % number == codes[:, None]) // 1
    labels = np.array(["c", "a", "b"])[codes]
    model = SAGEClassifier(**BY_VEM, random_state=0).fit(counts[:30], labels[:30])
    assert model.score(counts[30:], labels[30:]) == 1


@pytest.mark.slow
def test_a_margin_with_too_few_documents_to_temper_still_agrees_with_itself():
    """Three draws are for "a" by a little, one for "b" by far: the mean loss is less for "b", the mean share for "a"."""
    model = MedLDAClassifier(3)
    model.classes_, model.n_features_in_ = np.array(["a", "b"]), 12
    scores = np.array([1.2, 1.2, 1.2, -20.0])  # of "a", whatever the words
    draws = {
        "beta": rng.dirichlet(np.ones(12), (1, 4, 3)).astype(np.float32),
        "eta": np.broadcast_to(scores[:, None, None] * np.array([1.0, 0.0]), (1, 4, 3, 2)).astype(np.float32),
    }
    arguments = {"num_topics": 3, "outputs": 2, "cost": 1.0}
    model.fit_ = fit_of(models.medlda, draws, Corpus.from_counts(X[:6]), np.array([0.0, 1, 0, 1, 0, 1]), **arguments)
    prediction = model.fit_.predict(Corpus.from_counts(NEW), alike=True)
    assert prediction.temperature is None and (prediction.probabilities.argmax(1) == 0).all()
    assert (model.predict(NEW) == "b").all() and (prediction.code == 1).all()


def by_names(corpus, y=None, *, how_many=2, noise=0.5):
    """A user's own: another name for the number of topics, and y around twice the share of the last."""
    with numpyro.plate("topics", how_many):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(how_many, 0.3)))
    zbar = models.draw_words(corpus, theta, beta)
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ (2.0 * (jnp.arange(how_many) == how_many - 1)), noise), obs=y)


@pytest.mark.slow
def test_a_story_of_ones_own_is_fitted_and_pickled():
    model = StoryRegressor(by_names, story_options={"how_many": 3, "noise": 0.7}, engine_options=SHORT, random_state=0)
    model.fit(X[:30], rng.random(30))
    assert model.components_.shape == (3, 12) and model.transform(NEW).shape == (30, 3)
    found = model.predict(NEW)
    assert ((found >= 0) & (found <= 2)).all() and len(set(found)) > 10
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(NEW), found)


@pytest.mark.parametrize(
    "model, y, sentence",
    [
        (SLDARegressor(engine="hmc"), Y, "engine is 'hmc'; choose from 'gibbs', 'vem', 'svi', 'nuts'."),
        (SLDARegressor(engine_options={"draws": 3}), Y, "engine_options has 'draws', which is no setting of 'gibbs'"),
        (SLDARegressor(engine_options={"seed": 3}), Y, "engine_options has 'seed'"),
        (SLDARegressor(0), Y, "n_components is 0; give a whole number of at least 1."),
        (SLDARegressor(2.5), Y, "n_components is 2.5"),
        (StoryRegressor(by_names, 3), Y, "n_components is 3, and the story 'by_names' takes no num_topics"),
        (StoryRegressor(3), Y, "story is 3; give a function"),
        (
            StoryRegressor(by_names, story_options={"num_samples": 3}),
            Y,
            "story_options has 'num_samples', which is no argument",
        ),
        (LDA(story_options={"eta": 3}), None, "of the story 'lda'; it has num_topics, alpha, gamma."),
        (SLDAClassifier(), np.ones(60), "y has one class, 1.0; give documents of two classes or more."),
        (SLDAClassifier(response="probit"), THREE, "response is 'probit' for 3 classes"),
        (SLDAClassifier(), Y, "Unknown label type"),
        (SLDARegressor(), np.where(TWO, np.nan, 1.0), "Input y contains NaN"),
    ],
)
def test_bad_input_gets_one_sentence(model, y, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        model.fit(X, y)


def test_numbers_that_are_no_counts_are_refused(fitted):
    for table, sentence in (
        (X / 2, "is 1.5, which is not a whole number"),
        (-X, "Negative values in data"),
        (0 * X, "empty"),
    ):
        with pytest.raises(ValueError, match=sentence):
            regressor().fit(table, Y)
    with pytest.raises(ValueError, match="X is no table of counts"):
        fitted.predict(NEW / 2)
    with pytest.raises(NotFittedError):
        regressor().predict(NEW)
    with pytest.raises(NotFittedError):
        LDA().topics()


@pytest.fixture(scope="module")
def clusters():
    return MixtureOfCategoricals(3, engine_options=SHORT, random_state=0).fit(X[:30])


@pytest.mark.slow
def test_topics_of_words_alone_are_scored_by_new_words(clusters):
    held_out = diagnostics.perplexity(clusters.fit_, Corpus.from_counts(NEW))
    assert clusters.score(NEW) == held_out.per_word and clusters.perplexity(NEW) == held_out.perplexity
    np.testing.assert_array_equal(clusters.predict(NEW), clusters.transform(NEW).argmax(1))
    assert cross_val_predict(clusters, X[:30], cv=2).shape == (30,)


@pytest.mark.slow
@pytest.mark.longest
def test_the_page_on_estimators_runs():
    page = (Path(__file__).resolve().parents[1] / "docs/estimators.md").read_text()
    names = {}
    codes = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(codes) >= 4
    for code in codes:
        exec(compile(code, "estimators.md", "exec"), names)
