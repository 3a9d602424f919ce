"""Numbers of topics compared, by engines whose fits are made by hand: every score is known."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from fits import fit_of
from scipy.special import logsumexp

from topiczoo import diagnostics, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics.checks import topic_numbers
from topiczoo.diagnostics.checks.topic_argument import num_topics, topic_argument
from topiczoo.diagnostics.checks.topic_numbers import TopicNumbers, _ratio, _row, _Scored, _with_distances, best_chain
from topiczoo.inference.story.reader import bind
from topiczoo.inference.story.tracing import Story
from topiczoo.models import draw_words

matplotlib.use("agg")
RNG = np.random.default_rng(0)
CORPUS = Corpus.from_counts(RNG.poisson(1.0, (24, 6)) + np.eye(24, 6, dtype=int) + 1, list("abcdef"))
QUIET = {"progress_bar": False}


def edited(corpus, y=None, *, gamma=1, how_many=2, groups=3, spread=1.0):
    """Two whole numbers beside the number of topics, one of which shapes other sites."""
    numpyro.sample("effect", dist.Normal(0, spread).expand([groups]).to_event(1))
    with numpyro.plate("topics", how_many):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma, float)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(how_many)))
    draw_words(corpus, theta, beta)


def in_two_parts(corpus, *, own=2, shared=1):
    """The number of topics is a sum of two arguments."""
    return edited(corpus, how_many=own + shared)


def positional(corpus, how_many):
    """Neither by name alone nor with a default."""
    return edited(corpus, how_many=how_many)


@pytest.mark.parametrize(
    ("story", "given", "name"),
    [
        (edited, {}, "how_many"), (positional, {}, "how_many"), (models.lda, {"alpha": 1}, "num_topics"),
        (models.mixture, {}, "num_topics"), (in_two_parts, {"own": 3}, "shared"), (in_two_parts, {"shared": 3}, "own"),
    ],
)  # fmt: skip
def test_the_argument_is_found_by_reading_the_story(story, given, name):
    assert topic_argument(story, CORPUS, None, (4, 3, 5), given) == (name, [3, 4, 5])
    assert num_topics(bind(Story(story, {**given, name: 4}), CORPUS)) == 4 + (3 if story is in_two_parts else 0)


def test_an_argument_that_cannot_be_found_is_asked_for():
    with pytest.raises(
        ValueError, match=r"'in_two_parts' changes with 'own' and with 'shared'; name the argument: topics="
    ):
        topic_argument(in_two_parts, CORPUS, None, [2, 3], {})
    with pytest.raises(ValueError, match="changes with no argument that may be a whole number; name the argument"):
        topic_argument(edited, CORPUS, None, [2, 3], {"how_many": 4})
    assert topic_argument(in_two_parts, CORPUS, None, {"own": [3, 2]}, {}) == ("own", [2, 3])


class Engine:
    """Fits of the mixture by hand, with topics that are known for each number; remembers what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, story, corpus, y=None, *, seed, progress_bar, num_topics=2, sharp=0.9):
        assert not progress_bar
        self.seen.append((num_topics, set(corpus.names), seed, y))
        rng = np.random.default_rng(num_topics)
        beta = rng.dirichlet(np.full(6, sharp), (2, 3, num_topics)).astype(np.float32)
        theta = rng.dirichlet(np.ones(num_topics), (2, 3)).astype(np.float32)
        return fit_of(models.mixture, {"theta": theta, "beta": beta}, corpus, num_topics=num_topics)


def exact_scores(fit, counts):
    """log p(w_d | chain), [chain, documents]."""
    beta, theta = (fit.draws[name].astype(float) for name in ("beta", "theta"))
    logs = np.einsum("dv,cskv->cskd", counts, np.log(beta)) + np.log(theta)[..., None]
    return logsumexp(logs, axis=(1, 2)) - np.log(beta.shape[1])


@pytest.mark.slow
def test_held_out_words_are_scored_by_fits_that_have_not_seen_them():
    """Two of three parts are held out in turn; the mixture's p(w_d) is exact."""
    engine, fits = Engine(), 2
    found = diagnostics.compare_topics(
        "mixture", CORPUS, topics=[4, 2, 3], engine=engine, folds=3, fits=fits, seed=5, sharp=0.9, **QUIET
    )
    assert [k for k, *_ in engine.seen] == [2, 3, 4] * fits and {seed for *_, seed, _ in engine.seen} == {5}
    assert list(found.table.index) == [2, 3, 4] and found.table.index.name == "num_topics"
    order = np.random.default_rng(5).permutation(24).reshape(3, 8)[:fits]
    assert [names for _, names, *_ in engine.seen[::3]] == [set(CORPUS.names) - set(map(str, part)) for part in order]
    tokens = CORPUS.lengths[order.ravel()]
    scores = {}
    for k in (2, 3, 4):
        parts = [(CORPUS[np.setdiff1d(np.arange(24), rows)], CORPUS[rows]) for rows in order]
        fitted = [(Engine()("mixture", kept, num_topics=k, seed=0, progress_bar=False), test) for kept, test in parts]
        scores[k] = np.concatenate([best_chain(exact_scores(fit, test.counts.toarray())) for fit, test in fitted])
        assert found.table.loc[k, "words"] == pytest.approx(scores[k].sum() / tokens.sum(), rel=1e-5)
    # the error of a ratio, and that of the differences, document by document
    top = max(scores, key=lambda k: scores[k].sum())
    for k, own in scores.items():
        for value, column, error in (
            (own, "words", "words_error"), (scores[top] - own, "behind", "behind_error"),
        ):  # fmt: skip
            mean = value.sum() / tokens.sum()
            spread = np.std(value - mean * tokens, ddof=1) * np.sqrt(len(value)) / tokens.sum()
            assert found.table.loc[k, column] == pytest.approx(mean, rel=1e-4, abs=1e-9)
            assert found.table.loc[k, error] == pytest.approx(spread, rel=1e-4, abs=1e-9)
    assert found.table["agreement"].between(0, 1).all() and found.table["coherence"].notna().all()


def test_the_best_chain_is_chosen_on_the_other_half():
    by_chain = np.array([[0.0, -9.0, 0.0, -9.0], [-5.0, -1.0, -5.0, -1.0]])
    np.testing.assert_array_equal(best_chain(by_chain), [-5, -9, -5, -9])
    np.testing.assert_array_equal(best_chain(by_chain[:1]), by_chain[0])
    alike = by_chain - 100 * np.array([[0], [1]])
    np.testing.assert_array_equal(best_chain(alike), by_chain[0])


def made(behind, error, by="words", name="how_many"):
    """A comparison of 2, 4, 6, ... topics with given distances from the best."""
    index = pd.Index(2 * np.arange(1, len(behind) + 1), name=name)
    rows = {by: -np.asarray(behind), f"{by}_error": 0.1, "behind": behind, "behind_error": error}
    return TopicNumbers(pd.DataFrame({**rows, "agreement": np.nan, "coherence": 0.1}, index=index), by)


@pytest.mark.parametrize(
    ("behind", "error", "best", "words"),
    [
        ([3, 1.9, 0, 0.1], [1, 1, 0, 1], 4, "not told from the best, that of 6; it lies behind by 1.9 ± 1 a word."),
        ([3, 2.1, 0, 0.1], [1, 1, 0, 1], 6, "how_many=6: the best score of held-out words"),
        ([0, 1, 1, 1], [0, 2, 2, 2], 2, "It is the smallest that was tried: try fewer."),
        ([9, 9, 9, 0], [1, 1, 1, 0], 8, "It is the largest that was tried: try more."),
    ],
)
def test_the_smallest_number_within_two_standard_errors_of_the_best_is_chosen(behind, error, best, words):
    found = made(behind, error)
    assert found.best == best and words in found.why and found.why in repr(found)
    titles = [axis.get_title() for axis in found.plot().axes]
    assert titles == ["words, which decides", "coherence"]


def test_the_score_of_several_responses_is_their_sum_document_by_document(monkeypatch):
    """A number, and a class that is scored by its probabilities; a document counts that has one of them."""
    rng, nan = np.random.default_rng(0), np.nan
    logs = {"stars": rng.normal(size=(2, 3, 4)), "kind": rng.normal(size=(2, 3, 4))}
    logs["stars"][..., [1, 3]], logs["kind"][..., [2, 3]] = nan, nan
    shares = rng.dirichlet(np.ones(3), 4)
    told = {"stars": SimpleNamespace(probabilities=None), "kind": SimpleNamespace(probabilities=shares)}
    made = SimpleNamespace(
        log_likelihood=logs, predictions=told, observed={"kind": np.array([2.0, 0.0, nan, nan]), "stars": np.zeros(4)}
    )
    monkeypatch.setattr(topic_numbers, "pointwise", lambda *_, **__: made)
    monkeypatch.setattr(topic_numbers, "by_fitted", lambda fit, prediction, seed: prediction)
    total, labelled = topic_numbers._response_scores(None, range(4), None, 10, 0)
    stars = np.log(np.exp(logs["stars"]).mean((0, 1)))
    np.testing.assert_allclose(total, [stars[0] + np.log(shares[0, 2]), np.log(shares[1, 0]), stars[2], 0])
    np.testing.assert_array_equal(labelled, [1, 1, 1, 0])


def test_scores_and_distances_have_the_errors_of_paired_means():
    """Documents of one unit each: the error of a mean; of several units that of a ratio, by leaving documents out."""
    rng = np.random.default_rng(0)
    values = rng.normal(-3, 1, (3, 40))
    units = np.where(np.arange(40) < 30, 1.0, 0.0)
    mean, error = _ratio(values[0], units)
    own = values[0, :30]
    assert mean == pytest.approx(own.mean()) and error == pytest.approx(own.std(ddof=1) / np.sqrt(30))
    assert np.isnan(_ratio(values[0, :1], units[:1])[1]) and np.isnan(_ratio(values[0, 30:], units[30:])[0])
    words = rng.integers(20, 60, 400).astype(float)
    totals = words * rng.normal(-3, 0.2, 400)
    mean, error = _ratio(totals, words)
    left = (totals.sum() - totals) / (words.sum() - words)
    assert mean == pytest.approx(totals.sum() / words.sum())
    assert error == pytest.approx(np.sqrt(399 * left.var()), rel=0.02)
    found = {k: [_Scored({"words": (values[i, :20], units[:20])}, {}), _Scored({"words": (values[i, 20:], units[20:])}, {})]
             for i, k in enumerate((2, 5, 9))}  # fmt: skip
    table = _with_distances(pd.DataFrame({k: _row(rows) for k, rows in found.items()}).T, found, "words")
    top = values[:, :30].mean(1).argmax()
    gaps = values[top, :30] - values[:, :30]
    np.testing.assert_allclose(table["words"], values[:, :30].mean(1))
    np.testing.assert_allclose(table["behind"], gaps.mean(1), atol=1e-12)
    np.testing.assert_allclose(table["behind_error"], gaps.std(1, ddof=1) / np.sqrt(30), atol=1e-12)


def test_terms_that_the_fit_has_not_seen_do_not_count():
    counts = CORPUS.counts.toarray()
    rare = np.zeros((24, 1), int)
    rare[np.random.default_rng(0).permutation(24)[:8]] = 1  # in held-out documents alone
    wider = Corpus.from_counts(np.hstack([counts, rare]), list("abcdefg"))

    def engine(story, corpus, *, seed, progress_bar, num_topics):
        kept = Corpus.from_counts(corpus.counts[:, :6], list("abcdef"))
        fit = Engine()(story, kept, seed=0, progress_bar=False, num_topics=num_topics)
        beta = np.concatenate([fit.draws["beta"], np.full((*fit.draws["beta"].shape[:3], 1), 1e-20)], -1)
        return fit_of(models.mixture, {**fit.draws, "beta": beta.astype(np.float32)}, corpus, num_topics=num_topics)

    settings = {"topics": [2, 3], "folds": 3, **QUIET}
    wide = diagnostics.compare_topics("mixture", wider, engine=engine, **settings)
    plain = diagnostics.compare_topics("mixture", CORPUS, engine=Engine(), **settings)
    np.testing.assert_allclose(wide.table["words"], plain.table["words"], rtol=1e-5)


def test_the_response_decides_where_there_is_one(monkeypatch):
    """Responses of documents are scored by all chains together; a document without one does not count."""
    labels = np.where(np.arange(24) % 4 == 0, np.nan, np.arange(24.0))

    def response(fit, test, y, most_draws, seed):
        np.testing.assert_array_equal(y, labels[test.names.astype(int)])
        known = ~np.isnan(y)
        return np.where(
            known, -np.abs(len(fit.draws["theta"][0, 0]) - 3.0) - 0.1 * (test.names.astype(int) % 3), 0
        ), known * 1.0

    monkeypatch.setattr(topic_numbers, "_response_scores", response)
    monkeypatch.setattr(topic_numbers, "read", lambda *_, **__: None)
    monkeypatch.setattr(topic_numbers, "topic_argument", lambda *_: ("num_topics", [2, 3, 4]))
    engine = Engine()
    found = diagnostics.compare_topics("mixture", CORPUS, labels, [2, 3, 4], engine=engine, folds=2, **QUIET)
    assert found.by == "response" and found.best == 3 and "held-out responses" in found.why
    assert list(found.table["behind"].round(6)) == [1, 0, 1] and list(found.table["behind_error"].round(6)) == [0, 0, 0]
    for _, names, _, y in engine.seen:
        np.testing.assert_array_equal(y, [labels[i] for i in range(24) if str(i) in names])
    unlabelled = np.where(np.isin(np.arange(24), np.random.default_rng(0).permutation(24)[:12]), np.nan, 1.0)
    with pytest.raises(
        ValueError, match="y is NaN for every document that is held out in 1 of 2 folds; give more fits"
    ):
        diagnostics.compare_topics("mixture", CORPUS, unlabelled, [2, 3], engine=engine, folds=2, **QUIET)
    words = diagnostics.compare_topics(
        "mixture", CORPUS, labels, [2, 3, 4], engine=Engine(), folds=2, by="words", **QUIET
    )
    assert (
        words.by == "words"
        and words.table["words"].max() == words.table.loc[words.table["behind"] == 0, "words"].item()
    )


@pytest.mark.parametrize("response", ["normal", pytest.param("logit", marks=pytest.mark.slow)])
def test_a_response_is_scored_by_its_predictive_density(response):
    """Each topic has one word, and a document one word: zbar is known, and the density a mean over chains and draws."""
    words = np.arange(20) % 2
    corpus = Corpus.from_counts(3 * np.eye(2, dtype=int)[words], ["ant", "bee"])
    beta = np.broadcast_to(np.full((2, 2), 1e-7) + (1 - 2e-7) * np.eye(2), (2, 2, 2, 2))
    eta = np.array([[[-1.0, 1.0], [-2.0, 1.5]], [[0.5, 0.0], [-0.5, 2.0]]])
    y = np.where(np.arange(20) < 16, np.arange(20) // 2 % 2, np.nan)
    draws = {"beta": beta, "eta": eta} | ({"sigma": np.full((2, 2), 0.7)} if response == "normal" else {})
    fit = fit_of(
        models.slda_glm, {n: v.astype(np.float32) for n, v in draws.items()}, corpus, y, num_topics=2, alpha=1e-4,
        response=response,
    )  # fmt: skip
    predictor = eta[..., words].reshape(4, 20)
    if response == "normal":
        density = np.exp(-0.5 * ((y - predictor) / 0.7) ** 2) / (0.7 * np.sqrt(2 * np.pi))
    else:
        density = 1 / (1 + np.exp(np.where(y == 1, -predictor, predictor)))
    values, units = topic_numbers._response_scores(fit, corpus, y, 2, 0)
    np.testing.assert_array_equal(units, np.arange(20) < 16)
    np.testing.assert_allclose(values, np.where(units, np.log(density.mean(0)), 0), atol=2e-3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topics": [5]}, r"topics is \[5\]; give two or more whole numbers"),
        ({"topics": [0, 5]}, "give two or more whole numbers of at least 1"),
        ({"topics": [2.5, 5]}, "give two or more whole numbers"),
        ({"topics": 5}, "topics is 5; give two or more"),
        ({"topics": {"how_many": [2, 3], "gamma": [1, 2]}}, "name one argument"),
        ({"topics": {"how_many": [2, 3]}, "how_many": 2}, "how_many is in topics and given beside it"),
        ({"topics": [2, 3], "folds": 1}, "folds is 1 and fits is 1; give folds from 2 to half"),
        ({"topics": [2, 3], "folds": 2, "fits": 3}, "no more fits than folds"),
        ({"topics": [2, 3], "engine": "em"}, "engine is 'em'; choose from 'gibbs', 'vem', 'svi', 'nuts'"),
        ({"topics": [2, 3], "by": "topics"}, "by is 'topics'; choose from 'response', 'words'"),
        ({"topics": [2, 3], "by": "response"}, "by is 'response', and y is missing"),
        ({"topics": [2, 3], "method": "guess"}, "method is 'guess'; choose from"),
        ({"topics": [2, 3], "most_draws": 0}, "most_draws is 0"),
        ({"topics": [2, 3], "seed": -1}, "seed is -1"),
        ({"topics": {"depth": [2, 3]}}, "'depth' is no argument of the story 'edited'"),
        ({"topics": [2, 3], "gamma": -1}, "concentration"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_is_fitted(given, words, monkeypatch):
    monkeypatch.setattr(topic_numbers.inference, "gibbs", Engine())
    with pytest.raises((ValueError, TypeError), match=words):
        diagnostics.compare_topics(edited, CORPUS, **given)
    assert not topic_numbers.inference.gibbs.seen


@pytest.mark.longest
@pytest.mark.parametrize("engine", ["gibbs", "vem"])
def test_three_topics_of_different_words_are_told_from_two_and_five(engine):
    """Topics share no word, and every document has words of one or two of them: two topics lose 0.1 nats a word and more,
    and two more gain nothing."""
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(3, 0.3), 60)
    counts = np.stack([rng.multinomial(40, share @ np.kron(np.eye(3), np.full(5, 0.2))) for share in shares])
    short = {"num_warmup": 50, "num_samples": 20} if engine == "gibbs" else {}
    corpus, given = Corpus.from_counts(counts), {"engine": engine, "folds": 3, "gamma": 0.5, "alpha": 0.3}
    found = diagnostics.compare_topics("lda", corpus, topics=[2, 3, 5], **given, **short, **QUIET)
    assert found.best == 3 and found.table.loc[2, "behind"] > 0.1
    assert ("bound" in found.table) == (engine == "vem")
    assert engine == "vem" or found.table.loc[3, "agreement"] == 1
