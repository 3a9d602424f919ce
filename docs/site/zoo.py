"""What a page on a story shows beside the story itself: what it is read on, its paper, and where it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """Rows of a table of results.md as lines over its heads, beside what the paper shows."""

    section: str
    rows: tuple[str, ...]
    across: str
    up: str
    paper: str
    table: int = 0


@dataclass(frozen=True)
class Entry:
    """One story. `response` says what kind of y it is read on; `arguments` are those of the tiny example."""

    title: str
    cite: str
    response: str = "none"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    figure: Figure | None = None
    sections: tuple[str, ...] = ()
    tutorials: tuple[str, ...] = ()


LECTURE = "C. E. Rasmussen and Z. Ghahramani (2015), lectures 13 and 14 of Machine Learning 4F13, Cambridge"
BLEI = "D. M. Blei and J. D. McAuliffe (2007), Supervised topic models, NIPS 20"
SAGE = "J. Eisenstein, A. Ahmed and E. P. Xing (2011), Sparse additive generative models of text, ICML"

ZOO = {
    "mixture": Entry(
        "Mixture of categoricals",
        LECTURE,
    ),
    "lda": Entry(
        "Latent Dirichlet allocation",
        f"D. M. Blei, A. Y. Ng and M. I. Jordan (2003), Latent Dirichlet allocation, JMLR 3; as told in {LECTURE}",
        arguments={"alpha": "learned", "gamma": "learned"},
        sections=("held-out perplexity", "held-out perplexity with learned priors"),
    ),
    "slda": Entry(
        "Supervised LDA",
        BLEI,
        "number",
        figure=Figure(
            "Ratings of films, five-fold cross-validation",
            ("gibbs", "vem", "lda + regression", "tomotopy"),
            "number of topics",
            "predictive R²",
            "The paper's figure 2 (left) has predictive R² of film ratings by the number of topics, 0.500 at best for "
            "supervised LDA and 0.457 for the lasso.",
        ),
        sections=(
            "Ratings of films, five-fold cross-validation",
            "film reviews, a weight of the response and many short chains",
        ),
        tutorials=("edit_the_story",),
    ),
    "slda_glm": Entry(
        "Supervised LDA with any response",
        BLEI + ", section 4",
        "binary",
        {"response": "logit"},
        sections=("Two newsgroups, accuracy", "Twenty newsgroups, accuracy"),
        tutorials=("responses",),
    ),
    "sstm": Entry(
        "Sparse supervised topics",
        "Y. Wang, C.-L. Li and K. Lin, Sparse supervised topic model, report, Carnegie Mellon University",
        "number",
        figure=Figure(
            "Few topics for news",
            ("sstm | 50", "pipeline | 50", "dense | 50"),
            "coefficients kept",
            "share of wrong classes",
            "The paper's figure 3 has the error of BBC news in two classes by how many coefficients are kept; "
            "it reports 0.03 with 6 of 50.",
            1,
        ),
        sections=("Few topics for news", "Few topics for ratings"),
        tutorials=("sparse_topics",),
    ),
    "medlda": Entry(
        "Max-margin topics",
        "J. Zhu, A. Ahmed and E. P. Xing (2012), MedLDA: maximum margin supervised topic models, JMLR 13",
        "binary",
        {"margin": "binary"},
        figure=Figure(
            "Max-margin topics, twenty newsgroups",
            ("MedLDA, vem, one against all", "MedLDA, gibbs", "sLDA", "DiscLDA", "LDA + SVM"),
            "number of topics",
            "accuracy, twenty newsgroups",
            "The paper's figure 5 has accuracy on twenty newsgroups by the number of topics, MedLDA above the others.",
        ),
        sections=("Max-margin topics, twenty newsgroups", "Max-margin topics, two newsgroups"),
        tutorials=("margins",),
    ),
    "disclda": Entry(
        "DiscLDA",
        "S. Lacoste-Julien, F. Sha and M. I. Jordan (2008), DiscLDA: discriminative learning for dimensionality reduction "
        "and classification, NIPS 21",
        "binary",
        {"outputs": 2, "shared": 1, "num_topics": 3},
        sections=("Max-margin topics, two newsgroups",),
    ),
    "sage_nb": Entry(
        "Sparse additive classes",
        SAGE,
        "binary",
        {"outputs": 2},
        figure=Figure(
            "Sparse additive classes, twenty newsgroups",
            ("SAGE, Jeffreys", "SAGE, Laplace, scale 3", "Dirichlet-multinomial"),
            "percent of the training posts",
            "accuracy, twenty newsgroups",
            "The paper's figure 2 has accuracy on twenty newsgroups by the size of the training set, SAGE above the "
            "Dirichlet-multinomial everywhere and most where posts are few.",
        ),
        sections=("Sparse additive classes, twenty newsgroups",),
        tutorials=("additive_text",),
    ),
    "sage_topics": Entry(
        "Sparse additive topics",
        SAGE,
        figure=Figure(
            "Sparse additive topics, NIPS papers",
            ("SAGE, Jeffreys", "SAGE, Laplace", "LDA"),
            "number of topics",
            "perplexity a word",
            "The paper's figure 3 has perplexity of NIPS papers by the number of topics, SAGE below LDA.",
        ),
        sections=("Sparse additive topics, NIPS papers",),
        tutorials=("additive_text",),
    ),
    "sage_facets": Entry(
        "Additive topics and labels",
        SAGE,
        "binary",
        {"outputs": 2},
        sections=("Topics and sides of blogs",),
        tutorials=("additive_text",),
    ),
    "sage_geo": Entry(
        "Additive topics and regions",
        SAGE,
        "places",
        {"centres": [[0.0, 0.0], [5.0, 5.0]]},
        sections=("Where authors write from",),
        tutorials=("additive_text",),
    ),
}
