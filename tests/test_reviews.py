"""The simulated reviews: the same for a seed, readable, and as informative as their formula says."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge

from topiczoo import corpora
from topiczoo.corpora import reviews


@pytest.fixture(scope="module")
def loaded():
    return corpora.load_reviews(seed=0, return_aspects=True)


def test_the_same_seed_gives_the_same_reviews(loaded):
    corpus, y, aspects = loaded
    again, y_again, aspects_again = corpora.load_reviews(seed=0, return_aspects=True)
    assert (corpus.counts != again.counts).nnz == 0
    assert corpus.vocabulary.tolist() == again.vocabulary.tolist()
    np.testing.assert_array_equal(y, y_again)
    assert aspects.equals(aspects_again)
    few = corpora.load_reviews(seed=0, num_documents=20, return_aspects=True)[2]
    assert few.equals(aspects.iloc[:20])
    other = corpora.load_reviews(seed=1, num_documents=20, return_aspects=True)[2]
    assert (other["text"].to_numpy() != few["text"].to_numpy()).all()


def test_sizes_are_those_of_a_small_real_corpus(loaded):
    corpus, y, aspects = loaded
    assert len(corpus) == len(y) == len(aspects) == 1000
    assert 400 <= corpus.num_terms <= 700
    assert 40 <= np.median(corpus.lengths) <= 80
    assert corpus.lengths.min() >= 15
    assert y.min() >= 1.0
    assert y.max() <= 5.0
    assert y.std() > 0.8
    np.testing.assert_array_equal(y, y.round(1))
    short_corpus, short_y = corpora.load_reviews(num_documents=3)
    assert len(short_corpus) == len(short_y) == 3


def test_texts_are_sentences_and_none_comes_twice(loaded):
    texts = loaded[2]["text"]
    for text in texts:
        sentences = text.removesuffix(".").split(". ")
        assert 6 <= len(sentences) <= 14
        assert all(sentence[0].isupper() for sentence in sentences)
        assert "{" not in text
        assert "  " not in text
        assert len(set(sentences)) >= len(sentences) - 1
    assert texts.is_unique
    assert not texts.str.contains(r"s was |[^s] were so ").any()


def test_stars_follow_the_stated_formula(loaded):
    _, y, aspects = loaded
    shares = aspects[[f"{name}_share" for name in reviews.ASPECTS]].to_numpy()
    polarities = aspects[[f"{name}_polarity" for name in reviews.ASPECTS]].to_numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert set(np.unique(polarities)) == {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(polarities == 0, shares == 0)
    weights = {"food": 2.2, "service": 1.9, "price": 1.6, "waiting": 1.4, "place": 1.1}
    expected = 3 + (shares * polarities) @ [weights[name] for name in reviews.ASPECTS]
    inside = (y > 1) & (y < 5)
    # About 930 residuals: the standard error of their standard deviation is 0.3 / sqrt(1860) = 0.007,
    # and leaving out the clipped reviews narrows them a little.
    assert np.std((y - expected)[inside]) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("name", reviews.ASPECTS)
def test_each_opinion_on_each_aspect_has_its_own_words(name):
    analyze = CountVectorizer(stop_words="english").build_analyzer()
    aspect = reviews.ASPECTS[name]
    good, bad = (
        {word for phrases in w for text in phrases for word in analyze(text)} for w in (aspect.good, aspect.bad)
    )
    assert len(good - bad) >= 25
    assert len(bad - good) >= 25


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_words_predict_the_stars(seed):
    corpus, y = corpora.load_reviews(seed)
    counts = corpus.counts.astype(float)
    model = Ridge(alpha=10.0).fit(counts[:800], y[:800])
    assert model.score(counts[800:], y[800:]) >= 0.7


def test_no_reviews_cannot_be_asked_for():
    with pytest.raises(ValueError, match=r"num_documents is 0: .* at least one"):
        corpora.load_reviews(num_documents=0)
