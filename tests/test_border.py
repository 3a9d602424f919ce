"""Bad input ends in one sentence that names the argument, the value and the mend."""

from __future__ import annotations

import numpy as np
import pytest
import stories

from topiczoo import inference, models
from topiczoo.corpora import Corpus

CORPUS, Y = stories.small()
FEW = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "progress_bar": False}


def with_value(value, row=3):
    y = np.nan_to_num(stories.small(counts=True)[1])
    y[row] = value
    return y


CASES = {
    "not a corpus": (models.lda, np.ones((2, 3)), None, {}, TypeError, "corpus is a ndarray; make a Corpus"),
    "empty document": (
        models.lda, Corpus.from_counts(np.array([[1, 1], [0, 0]]), empty="keep"), None, {},
        ValueError, "1 documents without words",
    ),
    "y too short": (models.slda, CORPUS, Y[:-1], {}, ValueError, "y has 11 values for 12 documents"),
    "y missing": (models.slda, CORPUS, None, {}, ValueError, "y is missing.*'y'"),
    "y not asked for": (models.lda, CORPUS, Y, {}, TypeError, "'lda' takes no response"),
    "y infinite": (models.slda, CORPUS, with_value(np.inf), {}, ValueError, "y is infinite at document 3"),
    "y constant": (models.slda, CORPUS, np.ones(12), {}, ValueError, r"y is constant \(1\)"),
    "y all missing": (models.slda, CORPUS, np.full(12, np.nan), {}, ValueError, "NaN for every document"),
    "y text": (models.slda, CORPUS, np.array(["good"] * 12), {}, ValueError, "y is not numeric"),
    "y outside the support": (
        stories.poisson, CORPUS, with_value(-1.0), {},
        ValueError, "y of document '3' is -1.0, outside the support of the site 'y' .Poisson.",
    ),
    "y fractional": (stories.poisson, CORPUS, with_value(0.5), {}, ValueError, "outside the support"),
    "no topics": (models.lda, CORPUS, None, {"num_topics": 0}, ValueError, "num_topics is 0"),
    "fractional topics": (models.lda, CORPUS, None, {"num_topics": 2.5}, ValueError, "num_topics is 2.5"),
    "unknown keyword": (models.lda, CORPUS, None, {"topics": 3}, TypeError, "'topics' is no argument of the story 'lda'"),
    "missing keyword": (
        models.sage_topics, CORPUS, None, {"num_topics": 2},
        TypeError, "'background' is missing, and the story 'sage_topics' needs it; give it as background=",
    ),
    "unknown collapse": (models.lda, CORPUS, None, {"num_topics": 2, "collapse": "all"}, ValueError, "collapse is 'all"),
    "unknown site to keep": (models.lda, CORPUS, None, {"num_topics": 2, "keep": ["phi"]}, ValueError, r"keep names \['phi"),
    "no draws": (models.lda, CORPUS, None, {"num_topics": 2, "num_samples": 0}, ValueError, "num_samples is 0"),
    "no chains": (models.lda, CORPUS, None, {"num_topics": 2, "num_chains": 0}, ValueError, "num_chains is 0"),
    "thinning that does not divide": (
        models.lda, CORPUS, None, {"num_topics": 2, "num_samples": 5, "thinning": 2}, ValueError, "thinning is 2",
    ),
    "discrete latent nobody owns": (stories.global_switch, CORPUS, Y, {}, ValueError, "Nobody owns the discrete site"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_clear_sentence(case):
    story, corpus, y, arguments, error, words = CASES[case]
    with pytest.raises(error, match=words) as caught:
        inference.gibbs(story, corpus, y, **{**FEW, **arguments})
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_per_document_numbers_must_come_with_the_corpus():
    offset = np.arange(12.0)

    def story(corpus, y=None, *, num_topics=2):
        def shifted(corpus, y):
            stories.numpyro.sample("y", stories.dist.Normal(offset, 1.0), obs=y)

        beta = stories.topics(corpus, num_topics)
        stories.draw_words(corpus, stories.proportions(corpus, num_topics), beta)
        with stories.numpyro.plate("documents", corpus.num_documents):
            shifted(corpus, y)

    with pytest.raises(ValueError, match=r"must come in y or in corpus\.covariates"):
        inference.gibbs(story, CORPUS, Y, **FEW)


def test_draw_words_refuses_a_plate_and_wrong_shapes():
    def inside(corpus, *, num_topics=2):
        beta, theta = stories.topics(corpus, num_topics), stories.proportions(corpus, num_topics)
        with stories.numpyro.plate("documents", corpus.num_documents):
            stories.draw_words(corpus, theta, beta)

    def transposed(corpus, *, num_topics=2):
        beta, theta = stories.topics(corpus, num_topics), stories.proportions(corpus, num_topics)
        stories.draw_words(corpus, theta, beta.T)

    with pytest.raises(ValueError, match="inside a plate"):
        inference.gibbs(inside, CORPUS, **FEW)
    with pytest.raises(ValueError, match=r"beta of shape \(9, 2\)"):
        inference.gibbs(transposed, CORPUS, **FEW)
