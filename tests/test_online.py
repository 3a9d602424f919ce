"""Online variational EM: steps are those of Hoffman, Blei & Bach (2010); a whole corpus as one batch is variational EM."""

from __future__ import annotations

import pickle
import re
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from topiczoo import LDA, corpora, inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.lasting import checkpoint
from topiczoo.inference.marginal.batches import StreamBatches
from topiczoo.inference.online_em import topics
from topiczoo.inference.online_em.learner import Learner, Rates
from topiczoo.inference.online_em.responses import OnlineResponse
from topiczoo.inference.online_em.topics import OnlineTopics
from topiczoo.inference.steps.dirichlet import expected_log
from topiczoo.inference.streams.minibatches import Minibatches

K, V, D = 3, 12, 60
QUIET = {"progress_bar": False}


@pytest.fixture(scope="module")
def data():
    """Documents of three topics, and a response that follows them."""
    rng = np.random.default_rng(0)
    beta, theta = rng.dirichlet(np.full(V, 0.1), K), rng.dirichlet(np.full(K, 0.3), D)
    counts = np.stack([rng.multinomial(30, shares @ beta) for shares in theta])
    return Corpus.from_counts(counts), theta @ [-1.0, 0.0, 2.0] + rng.normal(0, 0.1, D)


def learner_of(story, corpus, y=None, size=D, rates=(0.5, 1.0), **arguments):
    batches = Minibatches(corpus, y, size, 0)
    graph = batches.read(story, {"num_topics": K, **arguments})
    return Learner(graph, Settings(), Rates(*rates, batches.num_documents), batches.size), batches, graph


def test_topics_are_the_weighted_mean_of_what_minibatches_would_have(monkeypatch):
    """And stay so when the factor that all counts share is taken up by them."""
    monkeypatch.setattr(topics, "SMALLEST", 0.3)
    rng = np.random.default_rng(0)
    prior, found = np.full((K, V), 0.2), rng.gamma(1.0, 1.0, (K, V))
    learned = OnlineTopics.start(prior, found)
    for step in range(5):
        terms, rho = np.sort(rng.permutation(V)[:4]), (2.0 + step) ** -0.6
        expected = rng.gamma(1.0, 1.0, (K, 4))
        hat = prior.copy()
        hat[:, terms] += 7.0 * expected
        found = (1 - rho) * found + rho * hat
        learned = learned.step(terms, expected, rho, 7.0)
        assert_allclose(learned.concentration(), found, rtol=1e-10)
        assert_allclose(learned.log_mean(terms), expected_log(found)[:, terms], rtol=1e-10)


@pytest.mark.parametrize("story", [models.lda, pytest.param(models.slda, marks=pytest.mark.slow)])
def test_the_whole_corpus_as_one_batch_at_rate_one_is_an_iteration_of_variational_em(data, story):
    corpus, y = data
    y = y if story is models.slda else None
    learner, batches, graph = learner_of(story, corpus, y)
    (batch,) = batches.of_pass(graph, 0)
    order = batch.corpus.source_rows
    found, bound = learner.step(learner.start(np.random.default_rng(1)), batch)
    model = EMModel(learner_of(story, corpus[order], None if y is None else y[order])[2], Settings())
    state = model.e_step(model.start(np.random.default_rng(1)), fresh=True)
    after = model.m_step(state, fresh=True)
    assert_allclose(found.topics.concentration(), after.topics, rtol=2e-3)
    assert_allclose(bound, np.sum(np.asarray(state.local.bound, float)), rtol=1e-4)
    if y is not None:
        for name in ("eta", "sigma"):
            assert_allclose(found.response.values[name], after.response[name], rtol=2e-2, atol=1e-2)


def test_a_batch_stands_for_the_corpus_and_one_that_is_filled_up_is_a_smaller_step(data):
    corpus, y = data
    learner, batches, graph = learner_of(models.slda, corpus, y, size=40, rates=(0.7, 4.0))
    (full, rest), start = list(batches.of_pass(graph, 0)), learner.start(np.random.default_rng(0))
    before = start.topics.concentration()
    assert (full.number, rest.number, len(rest.corpus)) == (40, 20, 40)
    assert np.isnan(rest.response.y[20:]).all() and not np.isnan(rest.response.y[:20]).any()
    after, _ = learner.step(start, full)
    rho, words = 4.0**-0.7, D / 40 * full.corpus.num_tokens
    expected = (1 - rho) * before.sum() + rho * (learner.topics.prior.sum() + words)
    assert_allclose(after.topics.concentration().sum(), expected, rtol=1e-5)
    again, _ = learner.step(after, rest)
    rho, words = 5.0**-0.7 / 2, D / 20 * rest.corpus.num_tokens
    expected = (1 - rho) * expected + rho * (learner.topics.prior.sum() + words)
    assert_allclose(again.topics.concentration().sum(), expected, rtol=1e-5)
    assert all(np.isfinite(np.asarray(value)).all() for value in again.response.values.values())


def test_five_documents_stand_for_twelve_copies_of_them(data):
    """Coefficients and scale after a step on one copy of twelve are those after a step on all."""
    corpus, y = data[0], np.array([4.0, -3.0, 2.0, -4.0, 1.0])
    rows = np.tile(np.arange(5), 12)
    found = []
    for number in (5, 60):
        learner, batches, graph = learner_of(models.slda, corpus[rows], y[rows], rates=(0.5, 1.0))
        (whole,) = batches.of_pass(graph, 0)
        if number == 5:
            learner, batches, graph = learner_of(models.slda, corpus[rows[:5]], y, size=5)
            (whole,) = batches.of_pass(graph, 0)
            learner.rates = learner.rates._replace(num_documents=60)
        start = learner.start(np.random.default_rng(0))
        values = {name: np.full_like(value, 0.7) for name, value in start.response.values.items()}
        after, _ = learner.step(start._replace(response=start.response._replace(values=values)), whole)
        found.append(after.response.values)
    assert not np.allclose(found[0]["sigma"], 0.7, rtol=0.05)
    for name in ("eta", "sigma"):
        assert_allclose(found[0][name], found[1][name], rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_passes_over_a_stream_find_topics_and_the_response_and_go_on_from_a_checkpoint(data, tmp_path, monkeypatch):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    corpus, y = data
    lists = [row.nonzero()[0] for row in corpus.counts.toarray()]
    counts = [row[row > 0] for row in corpus.counts.toarray()]
    table = pyarrow.table({"terms": [*lists, []], "counts": [*counts, []], "y": [*y, 0.5]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    stream = corpora.stream(tmp_path, terms="terms", counts="counts", vocabulary=V, y="y", batch_size=20)
    run = {"num_topics": K, "passes": 6, "tau": 1.0, "num_draws": 20, **QUIET}
    fit = inference.online(models.slda, stream, **run)
    assert fit.info["steps"] == 24 and fit.info["num_documents"] == 61 and len(fit.corpus) <= 20
    assert np.diff(fit.info["bound"])[0] > 0 and fit.draws["theta"].shape[2] == len(fit.corpus)
    assert np.corrcoef(fit.predict(corpus).mean, y)[0, 1] > 0.95
    assert fit.transform(corpus[:4]).shape == (4, K)

    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "MOST", 1e9)
    step, calls = Learner.step, []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return step(self, *given)

    monkeypatch.setattr(Learner, "step", interrupted)
    cut = inference.online(models.slda, stream, **run, checkpoint=tmp_path / "kept")
    assert cut.info["interrupted"] and cut.info["steps"] == 7
    whole = inference.online(models.slda, stream, **run, checkpoint=tmp_path / "kept")
    assert len(calls) == 8 + 17
    for site in ("beta", "eta", "sigma"):
        np.testing.assert_array_equal(whole.mean(site), fit.mean(site))
    assert whole.info["bound"] == fit.info["bound"]
    with pytest.raises(ValueError, match="give online the same stream again"):
        inference.resume(tmp_path / "kept")
    other = corpora.stream(tmp_path, terms="terms", counts="counts", vocabulary=V, y="y", batch_size=20, seed=1)
    with pytest.raises(ValueError, match="stream of online is"):
        inference.online(models.slda, other, **run, checkpoint=tmp_path / "kept")


@pytest.mark.slow
def test_classes_are_learned_by_steps_that_are_held_back(data):
    corpus, y = data
    labels = np.where(y > np.median(y), "high", "low")
    fit = inference.online(
        "slda_glm", corpus, labels, response="logit", num_topics=K, passes=10, batch_size=20, tau=1.0, **QUIET
    )
    assert (fit.predict(corpus).label == labels).mean() > 0.85


@pytest.mark.parametrize(
    ("story", "arguments", "sentence"),
    [
        ("lda", {"kappa": 0.3}, "kappa is 0.3; give a number from 0.5 to 1"),
        ("lda", {"tau": 0}, "tau is 0; give a positive number"),
        ("lda", {"passes": 0}, "passes is 0"),
        ("lda", {"start": "best"}, "start is 'best'"),
        ("lda", {"alpha": "learned"}, "cannot serve the site .* it stands above a Dirichlet prior"),
    ],
)
def test_what_minibatches_cannot_serve_is_said_at_once(data, story, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        inference.online(story, data[0], num_topics=K, **arguments, **QUIET)


def test_a_stream_has_its_own_responses_and_batches(data, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["a b", "b c"]}), tmp_path / "a.parquet")
    stream = corpora.stream(tmp_path, vocabulary=["a", "b", "c"])
    with pytest.raises(TypeError, match="y is given beside a stream"):
        inference.online("slda", stream, [1.0, 2.0], num_topics=2)
    with pytest.raises(ValueError, match="batch_size is 7, and the stream's batches are of 1024"):
        inference.online("lda", stream, batch_size=7, num_topics=2)
    with pytest.raises(ValueError, match="a stream takes guide='amortised'"):
        inference.svi("lda", stream, num_topics=2)
    with pytest.raises(ValueError, match="holds no documents out"):
        inference.svi("lda", stream, guide="amortised", response_weight=2.0, num_topics=2)
    missed = corpora.stream(tmp_path, vocabulary=["d"])
    with pytest.raises(ValueError, match="None of the first 2 documents holds a term of the vocabulary"):
        inference.online("lda", missed, num_topics=2)


def test_batches_of_a_stream_for_svi_have_one_shape_and_go_on_from_any(data):
    corpus, y = data
    _, batches, graph = learner_of(models.slda, corpus, y, size=25)
    dealt = list(islice(StreamBatches(graph, batches).random(np.random.default_rng(0)), 6))
    rows = [np.random.default_rng((0, number)).permutation(D) for number in range(2)]
    for number, (laid, response, places) in enumerate(dealt):
        own = rows[number // 3][number % 3 * 25 :][:25]
        table = np.zeros((25, V))
        np.add.at(table, (laid.pairs.document, laid.pairs.term), laid.pairs.count)
        assert_allclose(table[: len(own)], corpus.counts.toarray()[own])
        assert not table[len(own) :].any() and np.isnan(response[len(own) :]).all() and len(places) == 25
        assert_allclose(response[: len(own)], y[own], rtol=1e-6)
    assert len({len(laid.pairs.count) for laid, *_ in dealt}) == 1
    later = next(StreamBatches(graph, batches).random(np.random.default_rng(0), 4))
    assert_allclose(later[1], dealt[4][1])


def learned_from(batches, normal, rho=0.3, scale=5.0):
    """Coefficients after batches whose documents say -(eta - m)' A (eta - m) / 2, under a prior N(0, 1/2)."""

    def derivatives(words, values, part):
        gradient = -part.curvature @ (np.asarray(values["eta"], float) - part.place)
        return gradient[:, None], -part.curvature.reshape(2, 1, 2, 1)

    response = SimpleNamespace(
        eta="eta", shape=(2,), num_topics=2, is_normal=normal, points=SimpleNamespace(names=[]),
        parts=lambda log_mean, state: [state], derivatives_of_part=derivatives,
        slopes_of_prior=lambda values: (-2 * np.asarray(values["eta"], float), -2 * np.eye(2)),
    )  # fmt: skip
    found, tokens = [OnlineResponse.start({"eta": np.zeros(2, np.float32)})], np.array([[3.0, 1.0], [0.0, 4.0]])
    for curvature, place in batches:
        part = SimpleNamespace(curvature=curvature, place=place, local=SimpleNamespace(tokens=tokens))
        found.append(found[-1].step(response, SimpleNamespace(lengths=np.full(2, 4.0)), None, part, rho, scale))
    return [np.asarray(one.values["eta"], float) for one in found]


def test_coefficients_follow_the_running_mean_of_what_minibatches_say():
    """The first one decides alone. Of a response that is no quadratic no document's predictor moves by more than 1."""
    rng = np.random.default_rng(0)
    roots, places = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 2))
    batches = [(root @ root.T, place) for root, place in zip(roots, places, strict=True)]
    curvature, linear = 5 * batches[0][0], 5 * batches[0][0] @ places[0]
    expected = [np.zeros(2), np.linalg.solve(curvature + 2 * np.eye(2), linear)]
    for own, place in batches[1:]:
        curvature, linear = 0.7 * curvature + 1.5 * own, 0.7 * linear + 1.5 * own @ place
        expected.append(np.linalg.solve(curvature + 2 * np.eye(2), linear))
    assert_allclose(learned_from(batches, True), expected, rtol=1e-4)
    phibar = np.array([[0.75, 0.25], [0.0, 1.0]])
    for far in (0.1, 20.0):
        _, first = learned_from([(batches[0][0], far * places[0])], False)
        whole = far * expected[1]
        assert_allclose(first, whole / max(np.abs(phibar @ whole).max(), 1.0), rtol=1e-4)


def test_rates_fall_from_the_first_batch_on_as_hoffman_has_them():
    """rho_t = (tau + t)^-kappa, t the batches before."""
    rates = Rates(kappa=0.6, tau=8.0, num_documents=100)
    assert_allclose([rates.at(step) for step in (0, 1, 19)], [8**-0.6, 9**-0.6, 27**-0.6])


def test_documents_in_memory_have_another_order_in_every_pass_that_goes_on_from_any_batch():
    """All of them once, with their responses, the last batch with what is left."""
    corpus = Corpus.from_counts(np.ones((11, 2), int))
    source = Minibatches(corpus, np.arange(11.0), 4, 3).source
    passes = [[(b.corpus.source_rows.tolist(), b.y.y.tolist()) for b in source.batches(number)] for number in (0, 1, 0)]
    assert passes[0] == passes[2] != passes[1]
    for found in passes:
        assert [len(rows) for rows, _ in found] == [4, 4, 3] and all(rows == y for rows, y in found)
        assert sorted(row for rows, _ in found for row in rows) == list(range(11))
    again = [b.corpus.source_rows.tolist() for b in source.batches(1, 1)]
    assert again == [rows for rows, _ in passes[1][1:]]


def test_minibatches_one_by_one_are_those_of_a_pass(data):
    """Documents in the order in which a pass has them, so that the two end alike; more than a batch are taken in parts."""
    corpus, _ = data
    run = {"num_topics": K, "seed": 3, "tau": 2.0}
    first, order = np.arange(20), np.random.default_rng((3, 0)).permutation(20)
    learning = inference.OnlineVEM(models.lda, corpus[first], num_documents=40, **run)
    assert repr(learning.partial_fit(corpus[20:40])) == "OnlineVEM of lda after 2 minibatches"
    learner, batches, graph = learner_of(models.lda, corpus[first[order]], size=20)
    learner.rates, learned = Rates(0.7, 2.0, 40), learner.start(np.random.default_rng(3))
    for part in (corpus[first[order]], corpus[20:40]):
        learned, _ = learner.step(learned, batches.as_read(graph, part, None))
    assert_allclose(learning.so_far(1).mean("beta"), share(learned.topics.concentration()), rtol=1e-4)
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(learning)
    estimator = LDA(K, random_state=0)
    parts = [estimator.partial_fit(corpus.counts[rows], num_documents=40).components_ for rows in (first, first + 20)]
    assert estimator.fit_.info["steps"] == 2 and np.abs(parts[1] - parts[0]).max() > 1e-4


def share(counts):
    return counts / counts.sum(1, keepdims=True)


@pytest.mark.longest
def test_the_page_on_streams_runs(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    page = (Path(__file__).resolve().parents[1] / "docs/streams.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/streams.md", "exec"), names)
    told = pd.read_parquet("predictions.out.parquet")
    assert told["id"].tolist() == names["corpus"].names.tolist()
    assert np.corrcoef(told["mean"], names["table"]["stars"])[0, 1] > 0.5
    fit = names["fit"]
    assert fit.engine == "svi" and fit.info["num_documents"] == 400 and len(fit.corpus) == 100
    assert fit.importance_ratios is None and fit.draws["theta"].shape[2] == 100
