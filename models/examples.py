"""Every story on a few made-up documents: its title, its paper, and arguments with which it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus

from .catalogue import as_story
from .structured.seeds import seed_words

LECTURE = "C. E. Rasmussen and Z. Ghahramani (2015), lectures 13 and 14 of Machine Learning 4F13, Cambridge"
BLEI = "D. M. Blei and J. D. McAuliffe (2007), Supervised topic models, NIPS 20"
SAGE = "J. Eisenstein, A. Ahmed and E. P. Xing (2011), Sparse additive generative models of text, ICML"
STM = (
    "M. E. Roberts, B. M. Stewart and E. M. Airoldi (2016), A model of text for experimentation in the social sciences, "
    "JASA 111"
)


@dataclass(frozen=True)
class Example:
    """One story. ``response`` says what kind of y it is read on; an argument that is a function is made of the corpus."""

    title: str
    cite: str
    response: str = "none"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sentences: bool = False  # whether the story reads them


UNKNOWN = Example("", "", "number")  # a story that is not of the zoo


def _seeds(corpus):
    return seed_words(corpus, [corpus.vocabulary[:2], corpus.vocabulary[2:4]])


EXAMPLES = {
    "mixture": Example("Mixture of categoricals", LECTURE),
    "lda": Example(
        "Latent Dirichlet allocation",
        f"D. M. Blei, A. Y. Ng and M. I. Jordan (2003), Latent Dirichlet allocation, JMLR 3; as told in {LECTURE}",
        arguments={"alpha": "learned", "gamma": "learned"},
    ),
    "slda": Example("Supervised LDA", BLEI, "number"),
    "slda_glm": Example("Supervised LDA with any response", BLEI + ", section 4", "binary", {"response": "logit"}),
    "sstm": Example(
        "Sparse supervised topics",
        "Y. Wang, C.-L. Li and K. Lin, Sparse supervised topic model, report, Carnegie Mellon University",
        "number",
    ),
    "medlda": Example(
        "Max-margin topics",
        "J. Zhu, A. Ahmed and E. P. Xing (2012), MedLDA: maximum margin supervised topic models, JMLR 13",
        "binary",
        {"margin": "binary"},
    ),
    "disclda": Example(
        "DiscLDA",
        "S. Lacoste-Julien, F. Sha and M. I. Jordan (2008), DiscLDA: discriminative learning for dimensionality reduction "
        "and classification, NIPS 21",
        "binary",
        {"outputs": 2, "shared": 1, "num_topics": 3},
    ),
    "sage_nb": Example("Sparse additive classes", SAGE, "binary", {"outputs": 2}),
    "sage_topics": Example("Sparse additive topics", SAGE),
    "sage_facets": Example("Additive topics and labels", SAGE, "binary", {"outputs": 2}),
    "sage_geo": Example("Additive topics and regions", SAGE, "places", {"centres": [[0.0, 0.0], [5.0, 5.0]]}),
    "ctm": Example(
        "Correlated topics",
        "D. M. Blei and J. D. Lafferty (2007), A correlated topic model of Science, Annals of Applied Statistics 1",
    ),
    "stm": Example("Prevalence by covariates", STM, arguments={"prevalence": ["age"]}),
    "stm_content": Example("Content by a covariate", STM, arguments={"content": "side", "levels": 2}),
    "dmr": Example(
        "Dirichlet-multinomial regression",
        "D. Mimno and A. McCallum (2008), Topic models conditioned on arbitrary features with Dirichlet-multinomial "
        "regression, UAI",
        arguments={"prevalence": ["age"]},
    ),
    "dtm": Example(
        "Topics over time",
        "D. M. Blei and J. D. Lafferty (2006), Dynamic topic models, ICML",
        arguments={"period": "period", "periods": 3},
    ),
    "seeded_lda": Example(
        "Seeded topics",
        "K. Watanabe and A. Baturo (2024), Seeded sequential LDA: a semi-supervised algorithm for topic-specific analysis "
        "of sentences, Social Science Computer Review 42",
        arguments={"seeds": _seeds, "num_topics": 3},
    ),
    "keyatm": Example(
        "Keyword-assisted topics",
        "S. Eshima, K. Imai and T. Sasaki (2024), Keyword-assisted topic models, American Journal of Political Science 68",
        arguments={"seeds": _seeds, "num_topics": 3},
    ),
    "labelled_lda": Example(
        "Labelled LDA",
        "D. Ramage, D. Hall, R. Nallapati and C. D. Manning (2009), Labeled LDA: a supervised topic model for credit "
        "attribution in multi-labeled corpora, EMNLP",
        arguments={"labels": ["news", "sport"], "shared": 1},
    ),
    "hdp": Example(
        "Hierarchical Dirichlet process, truncated",
        "Y. W. Teh, M. I. Jordan, M. J. Beal and D. M. Blei (2006), Hierarchical Dirichlet processes, JASA 101",
        arguments={"num_topics": 4},
    ),
    "htmm": Example(
        "Hidden topic Markov model",
        "A. Gruber, M. Rosen-Zvi and Y. Weiss (2007), Hidden topic Markov models, AISTATS",
        sentences=True,
    ),
    "dp_mixture": Example(
        "Short texts, one topic each",
        "J. Yin and J. Wang (2016), A model-based approach for text clustering with outlier detection, ICDE",
        arguments={"num_topics": 4},
    ),
    "slda_raters": Example(
        "Ratings by several raters",
        f"P. McCullagh (1980), Regression models for ordinal data, JRSS B 42; with the topics of {BLEI}",
        "ratings",
        {"raters": 2, "num_classes": 3},
    ),
    "polylingual_lda": Example(
        "Several languages, or views",
        "D. Mimno, H. M. Wallach, J. Naradowsky, D. A. Smith and A. McCallum (2009), Polylingual topic models, EMNLP",
        arguments={"views": lambda corpus: np.arange(corpus.num_terms) % 2},
    ),
}  # fmt: skip


def example(
    story: str | Callable, documents: int = 12, terms: int = 9, words: float = 1.0
) -> tuple[Corpus, Any, dict[str, Any]]:
    """Documents, responses and arguments for a story of the zoo by its name, or for another, whose y are numbers.

    ``words`` is how often a term is in a document.
    """
    told, function = EXAMPLES.get(story, UNKNOWN) if isinstance(story, str) else UNKNOWN, as_story(story)
    rng, rows, takes = np.random.default_rng(0), np.arange(documents), inspect.signature(function).parameters
    counts = rng.poisson(words, (documents, terms)) + (np.arange(terms) == 0)
    covariates = {
        "age": (rows % 4 - 1.5) / 2, "side": rows % 2, "period": rows % 3, "news": (rows % 3 == 0).astype(int),
        "sport": (rows % 3 > 0).astype(int),
    }  # fmt: skip
    corpus = Corpus.from_counts(counts, covariates=covariates)
    if told.sentences:
        document, term = corpus.tokens()
        corpus = corpus.with_sentences(term, (np.arange(len(term)) - np.searchsorted(document, document)) // 3)
    y = {
        "none": None, "number": rng.normal(size=documents), "binary": rows % 2, "places": rng.normal(size=(documents, 2)),
        "ratings": rng.integers(0, 3, (documents, 2)).astype(float),
    }[told.response]  # fmt: skip
    given = {argument: made(corpus) for argument, made in getattr(function, "from_corpus", {}).items()}
    given |= {argument: value(corpus) if callable(value) else value for argument, value in told.arguments.items()}
    if "num_topics" in takes:
        given.setdefault("num_topics", 2)
    return corpus, y if "y" in takes else None, given
