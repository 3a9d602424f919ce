"""Coherence by hand, diversity and entropy."""

from __future__ import annotations

import numpy as np
import pytest
from fits import fit_of

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics.scoring.topic_quality import coherence, diversity, entropy

# cat and dog in two of four documents, together in one; fish with neither but once with cat
CORPUS = Corpus.from_tokens([["cat", "dog", "dog"], ["cat", "fish"], ["dog"], ["fish", "fish"]])
TOPIC = ["cat", "dog", "fish"]
# p(cat) = p(dog) = p(fish) = 1/2;  p(cat, dog) = p(cat, fish) = 1/4: independent, NPMI 0
# p(dog, fish) = 0: log(1e-12 / (1/4)) / -log(1e-12)
APART = (np.log(1e-12) - np.log(1 / 4)) / -np.log(1e-12)


def test_npmi_by_hand():
    found = coherence([TOPIC, ["cat", "dog"]], CORPUS)
    np.testing.assert_allclose(found["coherence"], [APART / 3, 0.0], atol=1e-9)
    assert found.index.name == "topic" and found.loc[0, "terms"] == "cat dog fish"
    assert -1 < APART < -0.9


def test_c_v_by_hand():
    # vectors (cat, dog, fish): cat (1, 0, 0), dog (0, 1, a), fish (0, a, 1); their sum (1, 1 + a, 1 + a)
    a = APART
    length = np.sqrt(1 + 2 * (1 + a) ** 2)
    cat = 1 / length
    dog = ((1 + a) + a * (1 + a)) / (np.sqrt(1 + a**2) * length)
    np.testing.assert_allclose(coherence([TOPIC], CORPUS, "c_v")["coherence"], [(cat + 2 * dog) / 3], atol=1e-9)


def test_always_together_everywhere_and_unknown():
    corpus = Corpus.from_tokens([["a", "b", "c"], ["a", "b", "c"], ["c"]])
    found = coherence([["a", "b"], ["a", "c"], ["a", "zebra"]], corpus)["coherence"]
    np.testing.assert_allclose(found[:2], [1.0, 0.0], atol=1e-9)  # c is everywhere: it tells nothing of a
    assert np.isnan(found[2])
    np.testing.assert_allclose(coherence([["a", "b"]], corpus, "c_v")["coherence"], [1.0])


def test_of_a_fit():
    beta = np.array([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]], np.float32)[None, None]
    corpus = Corpus.from_counts([[1, 1, 0, 1], [0, 2, 1, 1], [3, 1, 0, 0]], list("abcd"))
    fit = fit_of(models.lda, {"beta": beta}, corpus, num_topics=2)
    assert list(coherence(fit, corpus, n=2)["terms"]) == ["a b", "d c"]
    assert diversity(fit, n=2) == 1.0 and diversity(fit, n=3) == pytest.approx(4 / 6)
    assert diversity([["a", "b"], ["a", "b"]], n=2) == 0.5


def test_entropy():
    np.testing.assert_allclose(entropy([[0.5, 0.5], [1, 0], [0.9, 0.1]]), [1, 0, 0.468996], atol=1e-6)
    assert entropy([[1.0]]) == 0


def test_bad_input_is_refused_in_a_sentence():
    for call, words in (
        (lambda: coherence([TOPIC], CORPUS, "umass"), "measure is 'umass'"),
        (lambda: coherence([TOPIC], CORPUS, n=1), "n is 1"),
        (lambda: coherence(TOPIC, CORPUS), "list of lists"),
        (lambda: entropy([[0.5, 0.9]]), "proportions"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()
