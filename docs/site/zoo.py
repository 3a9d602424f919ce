"""What a page on a story shows beside the story and its example (`models/examples.py`): where it was measured."""

from __future__ import annotations

from dataclasses import dataclass


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
    """One story."""

    figure: Figure | None = None
    sections: tuple[str, ...] = ()
    tutorials: tuple[str, ...] = ()


ZOO = {
    "mixture": Entry(),
    "lda": Entry(
        sections=("held-out perplexity", "held-out perplexity with learned priors"),
    ),
    "slda": Entry(
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
        sections=("Two newsgroups, accuracy", "Twenty newsgroups, accuracy"),
        tutorials=("responses",),
    ),
    "sstm": Entry(
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
        sections=("Max-margin topics, two newsgroups",),
    ),
    "sage_nb": Entry(
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
        sections=("Topics and sides of blogs",),
        tutorials=("additive_text",),
    ),
    "sage_geo": Entry(
        sections=("Where authors write from",),
        tutorials=("additive_text",),
    ),
    "ctm": Entry(
        sections=("news articles, the correlated topic model beside LDA",),
    ),
    "stm": Entry(),
    "stm_content": Entry(),
    "dmr": Entry(),
    "dtm": Entry(),
    "seeded_lda": Entry(),
    "keyatm": Entry(),
    "labelled_lda": Entry(),
    "hdp": Entry(),
    "htmm": Entry(),
    "dp_mixture": Entry(),
    "slda_raters": Entry(),
    "polylingual_lda": Entry(),
}
