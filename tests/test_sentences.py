"""Words of a sentence share their topic: what a corpus keeps, exact draws, responses, prediction and files."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.diagnostics import geweke, perplexity
from topiczoo.inference.blocks.block import few
from topiczoo.inference.kernels.sentences import Chain, draw_sentences, log_words, of_sentences
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.sweeping import sweep_sentences
from topiczoo.models import draw_words

QUIET = {"progress_bar": False}
TEXTS = ["The cat sat. The dog ran! Did it?", "dog dog. cat", "Nothing known", "ran ran ran"]
WORDS = [[["a", "b"], ["c"], ["b", "b"]], [["c", "c"], ["a"]], [["b"]]]
THETA = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
BETA = np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]])
SWITCH = 0.35
CORPUS = Corpus.from_sentences(WORDS, covariates={"first": THETA[:, 0]})


def test_a_corpus_keeps_its_sentences_on_request():
    corpus = Corpus.from_texts(TEXTS, vocabulary=["cat", "dog", "ran", "it"], sentences=True, empty="drop")
    words, begins = corpus.vocabulary[corpus.sentences.terms], corpus.sentences.begins
    assert " ".join(words) == "cat dog ran it dog dog cat ran ran ran" and corpus.names.tolist() == ["0", "1", "3"]
    assert begins.astype(int).tolist() == [1, 1, 0, 1, 1, 0, 1, 1, 0, 0]
    assert corpus[[2, 0]].sentences.begins.astype(int).tolist() == [1, 0, 0, 1, 1, 0, 1]
    other = corpus.with_vocabulary(["ran", "new", "cat"])
    assert other.vocabulary[other.sentences.terms].tolist() == ["cat", "ran", "cat", "ran", "ran", "ran"]
    assert other.sentences.begins.tolist() == [True, True, True, True, False, False]
    np.testing.assert_array_equal(np.bincount(other.tokens()[0], minlength=3), other.lengths)
    assert Corpus.from_texts(TEXTS).sentences is None
    with pytest.raises(ValueError, match="ngram_range"):
        Corpus.from_texts(TEXTS, sentences=True, ngram_range=(1, 2))
    with pytest.raises(ValueError, match=r"Corpus.from_texts\(texts, sentences=True\)"):
        inference.gibbs(models.htmm, Corpus.from_texts(TEXTS), num_topics=2, **QUIET)


def configurations(document):
    """Every course of topics through a document's sentences, and whether each was taken, with log p of all."""
    sentences, terms = WORDS[document], {"a": 0, "b": 1, "c": 2}
    for taken in itertools.product([0, 1], repeat=len(sentences) - 1):
        for new in itertools.product([0, 1], repeat=1 + sum(taken)):
            drawn, topic, course, log_p = iter(new), None, [], 0.0
            for s, (part, takes) in enumerate(zip(sentences, (1, *taken), strict=True)):
                log_p += 0.0 if s == 0 else np.log(SWITCH if takes else 1 - SWITCH)
                if takes:
                    topic = next(drawn)
                    log_p += np.log(THETA[document, topic])
                log_p += sum(np.log(BETA[topic, terms[word]]) for word in part)
                course += [topic] * len(part)
            yield (*course, *(1, *taken)), log_p


def laws():
    return [dict(configurations(document)) for document in range(len(WORDS))]


def chain():
    term_topic = np.vstack([BETA.T, np.ones(2)])
    return Chain(*(jnp.asarray(part, jnp.float32) for part in (term_topic, THETA, SWITCH)))


def test_words_have_the_sum_over_all_courses_of_topics():
    batches = documents(CORPUS, batches=True).laid_out
    found = log_words(chain(), batches)
    np.testing.assert_allclose(found, [logsumexp(list(law.values())) for law in laws()], rtol=1e-5)


def frequencies(topics, taken, batches):
    """How often each course of topics was drawn, document by document."""
    shard, place, lane = batches.positions()
    topics, taken = (np.asarray(part)[:, shard, place, lane] for part in (topics, taken))
    begins, ends = CORPUS.sentences.begins, CORPUS.sentences.ends
    found = []
    for d in range(len(WORDS)):
        own = slice(ends[d], ends[d + 1])
        rows = np.hstack([topics[:, own], taken[:, own][:, begins[own]]])
        assert not taken[:, own][:, ~begins[own]].any()
        courses, number = np.unique(rows, axis=0, return_counts=True)
        found.append({tuple(course.tolist()): n for course, n in zip(courses, number, strict=True)})
    return found


MOST_APART = 4.5  # standard errors of a frequency


def apart(found, logs, number):
    """The largest difference of frequencies from the law, in errors of as many independent draws as ``number`` says."""
    assert set(found) <= set(logs), "courses of topics that cannot be"
    law = np.exp(np.array(list(logs.values())) - logsumexp(list(logs.values())))
    shares = np.array([found.get(course, 0) for course in logs]) / sum(found.values())
    return (np.abs(shares - law) / np.sqrt(law * (1 - law) / number + 1e-18)).max()


def test_draws_have_their_exact_law():
    batches, number = documents(CORPUS, batches=True).laid_out, 20_000
    draw = jax.jit(jax.vmap(lambda key: draw_sentences(key, chain(), batches)))
    found = frequencies(*draw(jax.random.split(jax.random.key(0), number)), batches)
    for own, law in zip(found, laws(), strict=True):
        assert apart(own, law, number) < MOST_APART


def test_part_of_a_document_is_drawn_given_the_rest():
    """The first document's last sentence keeps topic 1."""
    batches, number = documents(CORPUS, batches=True).laid_out, 10_000
    place = batches.positions()
    given = np.zeros(CORPUS.num_tokens, bool)
    given[3:5] = True
    kept, topics = (
        jnp.zeros(batches.terms.shape, part.dtype).at[place].set(part) for part in (given, given.astype(np.int32))
    )
    draw = jax.jit(jax.vmap(lambda key: draw_sentences(key, chain(), batches, kept, topics)))
    found = frequencies(*draw(jax.random.split(jax.random.key(1), number)), batches)
    possible = {course: log_p for course, log_p in laws()[0].items() if course[4] == 1}
    assert apart(found[0], possible, number) < MOST_APART
    assert apart(found[1], laws()[1], number) < MOST_APART


Y = np.array([1.5, -1.0, 0.2])
ETA, SIGMA = np.array([-2.0, 1.0]), 0.6


def fixed(corpus, y=None):
    """All but the topics is known."""
    first = jnp.asarray(corpus.covariates["first"])
    zbar = draw_words(corpus, jnp.stack([first, 1 - first], 1), jnp.asarray(BETA), switch=SWITCH)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ jnp.asarray(ETA), SIGMA), obs=y)


def test_topics_above_a_response_have_their_exact_law():
    """Proposals of whole documents and of parts, accepted by the response."""
    graph = read(fixed, CORPUS, Y, {})
    data = graph.documents(batches=True), graph.response.on_device()
    batches, chains, turns = data[0].laid_out, 400, 60

    def one(key):
        z = of_sentences(*draw_sentences(key, chain(), batches), batches, 2, 3)._replace(proposed=jnp.zeros(()))

        def step(z, key):
            z = sweep_sentences(key, z, graph, *data, {}, True)
            return z, (z.topics, z.taken)

        return jax.lax.scan(step, z, jax.random.split(key, turns))[1]

    topics, taken = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), chains))
    topics, taken = (part[:, 20:].reshape(-1, *part.shape[2:]) for part in (topics, taken))
    found = frequencies(topics, taken, batches)
    for d, (own, law) in enumerate(zip(found, laws(), strict=True)):
        length = CORPUS.lengths[d]
        logs = {c: p - 0.5 * ((Y[d] - np.mean(ETA[list(c[:length])])) / SIGMA) ** 2 for c, p in law.items()}
        assert apart(own, logs, number=chains * 8) < MOST_APART


def planted(number=60, seed=0):
    """Two topics of four words each; sentences of three words stay with their topic three times of four."""
    rng = np.random.default_rng(seed)
    texts, share = [], []
    for d in range(number):
        topic, sentences, theta = rng.random() < 0.5, [], (0.2, 0.8)[d % 2]
        for s in range(12):
            if s == 0 or rng.random() < 0.25:
                topic = rng.random() < theta
            sentences.append([f"{'ab'[int(topic)]}{rng.integers(4)}" for _ in range(3)])
        texts.append(sentences)
        share.append(np.mean([part[0][0] == "b" for part in sentences]))
    return Corpus.from_sentences(texts), np.array(share)


@pytest.fixture(scope="module")
def fitted():
    corpus, share = planted()
    y = 4 * share + np.random.default_rng(1).normal(0, 0.1, len(share))
    fit = inference.gibbs(
        models.htmm, corpus[:40], y[:40], num_topics=2, alpha=0.5, response="normal", num_warmup=100, num_samples=100,
        num_chains=2, **QUIET,
    )  # fmt: skip
    return fit, corpus, y


@pytest.mark.slow
def test_switches_topics_and_responses_are_found(fitted):
    fit, corpus, y = fitted
    low, high = np.quantile(fit.draws["switch"], [0.01, 0.99])
    assert 0.1 < low < 0.27 and 0.23 < high < 0.55
    predicted = fit.predict(corpus[40:]).mean
    assert np.corrcoef(predicted, y[40:])[0, 1] > 0.97
    theta = fit.transform(corpus[40:])
    assert theta.shape == (20, 2)


def test_a_saved_fit_predicts_the_same(fitted, tmp_path):
    fit, corpus, _ = fitted
    fit.save(tmp_path / "fit.nc")
    again = inference.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.corpus.sentences.begins, fit.corpus.sentences.begins)
    np.testing.assert_allclose(again.predict(corpus[40:]).mean, fit.predict(corpus[40:]).mean, rtol=1e-5)


def test_every_block_is_the_storys_own():
    corpus, share = planted(6)
    for given in ({}, {"response": "normal"}, {"alpha": "learned", "gamma": "learned"}):
        table = inference.check(models.htmm, corpus, share if given.get("response") else None, num_topics=3, **given)
        assert table.passes.all() and "Beta draw" in set(table.block), table


def test_held_out_words_are_refused_in_a_sentence(fitted):
    with pytest.raises(ValueError, match="words of a sentence share their topic"):
        perplexity(fitted[0], fitted[1][40:])


@pytest.mark.parametrize("engine", ["vem", "svi"])
def test_engines_that_do_not_serve_say_so(engine):
    with pytest.raises(ValueError, match=r"share their topic"):
        getattr(inference, engine)(models.htmm, planted(6)[0], num_topics=2, **QUIET)


def test_theta_is_drawn_again_before_topics_are():
    """What stands above theta may have been drawn with theta integrated out: the one from before must not count."""
    graph = read(models.htmm, planted(3)[0], None, {"num_topics": 2})
    block, small = choose_blocks(graph).blocks[-1], few(graph)

    @jax.jit
    def drawn(theta):
        return block.draw(jax.random.key(0), {**small.values, "theta": theta}, small.data)[0]["z"].topics

    np.testing.assert_array_equal(*(drawn(jnp.tile(jnp.array([p, 1 - p]), (3, 1))) for p in (0.01, 0.99)))


@pytest.mark.slow
@pytest.mark.longest
def test_priors_above_sentences_pass_gewekes_test():
    """alpha is drawn with theta integrated out, and topics given a theta that must be drawn again in between."""
    shape = Corpus.from_sentences([[["a", "b"], ["c", "a"], ["b"]], [["c"], ["b", "a"]], [["a", "c"], ["b", "b"]]])
    table = geweke(models.htmm, shape, num_chains=1500, num_topics=2, alpha="learned", gamma=1.0, progress_bar=False)
    assert table["passes"].all(), table


@pytest.mark.longest
def test_nuts_and_gibbs_agree():
    corpus, _ = planted(12)
    settings = {"num_topics": 2, "alpha": 0.5, "num_chains": 2, **QUIET}
    by_gibbs = inference.gibbs(models.htmm, corpus, num_warmup=200, num_samples=1000, **settings).draws["switch"]
    by_nuts = inference.nuts(models.htmm, corpus, num_warmup=200, num_samples=300, **settings).draws["switch"]
    assert abs(by_gibbs.mean() - by_nuts.mean()) < 0.25 * by_gibbs.std()
    assert 0.8 < by_gibbs.std() / by_nuts.std() < 1.25
