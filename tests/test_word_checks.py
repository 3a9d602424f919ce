"""The check of words: mutual information by hand, a true story that passes and a planted dependence that does not."""

from __future__ import annotations

import numpy as np
import pytest
from fits import fit_of

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics.checks.word_checks import _Comparison, check_words, mutual_information

RNG = np.random.default_rng(5)
TOPICS, TERMS, DOCUMENTS = 3, 30, 120
BETA = RNG.dirichlet(np.full(TERMS, 0.1), TOPICS)


def simulate(bursty=()):
    """Words of LDA with known topics; a bursty topic has terms of its own in each document."""
    counts = np.zeros((DOCUMENTS, TERMS), int)
    for d, theta in enumerate(RNG.dirichlet(np.full(TOPICS, 0.3), DOCUMENTS)):
        for k, number in enumerate(RNG.multinomial(60, theta)):
            own = RNG.dirichlet(8 * BETA[k] + 1e-3) if k in bursty else BETA[k]
            counts[d] += RNG.multinomial(number, own)
    return Corpus.from_counts(counts, [f"w{v}" for v in range(TERMS)])


def fit_at_the_truth(corpus):
    beta = np.broadcast_to(BETA, (2, 4, TOPICS, TERMS)).astype(np.float32)
    return fit_of(models.lda, {"beta": np.maximum(beta, 1e-12)}, corpus, num_topics=TOPICS, alpha=0.3)


def test_mutual_information_by_hand():
    # topic 0: term 0 in document 0 twice, term 1 in document 1 twice: knowing the term is knowing the document
    # topic 1: both terms in both documents once: independent
    topic = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    document = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    term = np.array([0, 0, 1, 1, 0, 1, 0, 1])
    whole, one_by_one = mutual_information(topic, document, term, (3, 2))
    np.testing.assert_allclose(whole, [np.log(2), 0, 0], atol=1e-12)
    np.testing.assert_allclose(one_by_one, [[np.log(2)] * 2, [0, 0], [0, 0]], atol=1e-12)
    # unequal counts, by the definition
    topic, document, term = np.zeros(5, int), np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    joint = np.array([[2, 1], [0, 2]]) / 5
    outer = joint.sum(1, keepdims=True) * joint.sum(0)
    expected = sum(p * np.log(p / q) for p, q in zip(joint.ravel(), outer.ravel(), strict=True) if p)
    np.testing.assert_allclose(mutual_information(topic, document, term, (1, 2))[0], [expected])


def test_what_a_permutation_cannot_change_is_no_surprise():
    """Replications that equal what is seen count for it: a term that occurs once in a topic has p = 1."""
    compared = _Comparison((2,))
    for _ in range(2):
        compared.add(np.array([1.0, 0.0]), np.array([[0.0, 0.0], [1, 0], [1, 0], [2, 0]]))
    np.testing.assert_allclose(compared.frame()["p"], [0.75, 1.0])
    np.testing.assert_allclose(compared.frame()["deviation"], [0.0, 0.0])
    np.testing.assert_allclose(compared.frame()["replicated"], [1.0, 0.0])


def test_draws_are_averaged_and_judged_by_the_spread_within_them():
    """Two draws of other size: what differs between them is no spread of the replications."""
    compared, observed = _Comparison((1,)), np.array([[5.0], [105.0]])
    replicated = np.array([[[1.0], [2.0], [6.0]], [[101.0], [104.0], [107.0]]])
    for one, others in zip(observed, replicated, strict=True):
        compared.add(one, others)
    told = compared.frame().iloc[0]
    spread = np.sqrt((replicated[0].var(ddof=1) + replicated[1].var(ddof=1)) / 2)
    assert told["observed"] == 55 and told["replicated"] == replicated.mean() and told["p"] == (1 / 3 + 1 / 3) / 2
    assert told["deviation"] == pytest.approx((55 - replicated.mean()) / spread)


def test_the_true_story_passes_and_a_bursty_topic_is_flagged():
    passed = check_words(fit_at_the_truth(simulate()), most_draws=4, replications=20)
    assert list(passed.topics.columns) == ["tokens", "observed", "replicated", "deviation", "p"]
    assert np.abs(passed.topics["deviation"]).max() < 3.5 and not passed.deviating
    assert np.abs(passed.terms["deviation"]).mean() < 1.5
    found = check_words(fit_at_the_truth(simulate(bursty=[1])), n=5, most_draws=4, replications=20)
    assert 1 in found.deviating
    assert found.topics["deviation"].idxmax() == 1 and found.topics.loc[1, "deviation"] > 10
    assert found.topics.loc[1, "p"] == 0 and "topic 1" in repr(found)
    assert len(found.terms) == 15
    by_topic = found.terms.groupby("topic")["deviation"].mean()
    assert by_topic.idxmax() == 1 and by_topic[1] > 3
    np.testing.assert_allclose(found.topics["tokens"].sum(), 60 * DOCUMENTS)


def test_token_topics_stand_by_their_tokens():
    """Topics that share no term: every token's topic is known."""
    corpus = Corpus.from_counts(
        RNG.poisson(1.0, (9, 6)) + np.eye(9, 6, dtype=int) + (np.arange(6) == 5), list("abcdef")
    )
    beta = np.array([[0.5, 0, 0.5, 0, 0, 0], [0, 0.4, 0, 0.6, 0, 0], [0, 0, 0, 0, 0.3, 0.7]], np.float32)
    fit = fit_of(models.lda, {"beta": np.broadcast_to(beta, (2, 3, 3, 6))}, corpus, num_topics=3)
    found = inference.token_topics(fit, corpus, chain=1, most_draws=2, num_burn=1)
    assert found.topics.shape == (2, corpus.num_tokens)
    np.testing.assert_array_equal(np.stack([found.document, found.term]), np.stack(corpus.tokens()))
    np.testing.assert_array_equal(found.topics, np.broadcast_to(beta.argmax(0)[found.term], found.topics.shape))
    with pytest.raises(ValueError, match="chain is 2"):
        inference.token_topics(fit, corpus, chain=2)
    with pytest.raises(ValueError, match="replications is 1"):
        check_words(fit, replications=1)


def test_one_topic_a_document_has_nothing_to_check():
    draws = {"theta": np.full((1, 2, 2), 0.5, np.float32), "beta": np.full((1, 2, 2, TERMS), 1 / TERMS, np.float32)}
    with pytest.raises(ValueError, match="no topics of their own"):
        check_words(fit_of(models.mixture, draws, simulate(), num_topics=2))
