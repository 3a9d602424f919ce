"""The report's sections, each from one aligned fit; a section that has nothing to say is None."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.inference.posterior.leading_terms import leading, term_scores
from topiczoo.inference.posterior.naming import topic_labels
from topiczoo.inference.posterior.posterior import serving

from ..convergence.alignment import topic_usage
from ..convergence.diagnosis import Diagnosis
from ..convergence.quantities import Series, series
from ..drawing.chains import objective, ranks, trace
from ..drawing.forest import forest
from ..plotting.coefficients import leading_rows, panels_of
from ..scoring.held_out import perplexity
from ..scoring.predictive_scores import scores
from .document_page import page_of_documents
from .documents import browsed, proportions
from .page import Cell, Column, Section, drawing, fixed, note, number, outcome, pictures, table

MOST_CHECKED = 1000  # documents in the predictive checks
MOST_NUMBERS = 400  # rows in the table of R-hats
MOST_PANELS = 6  # columns of coefficients in the table and the forest
MOST_IN_FOREST = 60
TERMS = 10  # of a topic


def known(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


class Sections:
    """Everything the sections need of one aligned fit."""

    def __init__(self, diagnosis: Diagnosis, test: Corpus | None, y_test: Any, documents: int, seed: int) -> None:
        self.diagnosis, self.seed = diagnosis, seed
        self.fit = cast(Any, diagnosis.fit)  # aligned: it has .alignment
        self.test, self.y_test = test, y_test
        self.alignment: pd.DataFrame = self.fit.alignment.topics
        self.num_topics = len(self.alignment)
        self.num_chains: int = self.fit.alignment.permutations.shape[0]
        self.names = topic_labels(self.fit, self.num_topics)  # numbers, where topics have none
        # averages over chains mean something only for topics that all chains have
        self.same = not self.fit.alignment.unmatched
        self.chains = list(range(self.num_chains)) if self.same else [0]
        self.corpus: Corpus = self.fit.corpus if test is None else test
        self.y = self.fit.y if test is None else y_test
        self.what = "fitted documents" if test is None else "held-out documents"
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.corpus))
        self.shown = np.sort(order[:documents])
        self.rows = np.sort(order[: max(documents, MOST_CHECKED if self.y is not None else 0)])
        self.prediction, self.no_prediction = self._predict()

    def _predict(self) -> tuple[Any, str]:
        if self.fit.y is None or not len(self.rows):
            return None, ""
        try:
            return self.fit.predict(self.corpus[self.rows], seed=self.seed), ""
        except ValueError as error:  # a story whose topics cannot be folded in: said in the report
            return None, str(error)

    @cached_property
    def beta(self) -> np.ndarray:
        """Mean topics over the chains that have them, [topics, terms]."""
        return np.mean([self.fit.topic_terms(chain) for chain in self.chains], axis=0)

    @cached_property
    def counts(self) -> np.ndarray:
        """How often each term occurs in the fitted documents."""
        return np.asarray(self.fit.corpus.counts.sum(0)).ravel()

    @cached_property
    def usage(self) -> np.ndarray | None:
        """The share of words of each topic: what alignment went by, or told from some documents; None if it cannot be."""
        if topic_usage(self.fit) is not None:
            return self.alignment["usage"].to_numpy(float)
        corpus = self.fit.corpus
        rows = np.sort(np.random.default_rng(self.seed).permutation(len(corpus))[:MOST_CHECKED])
        try:
            found = corpus.lengths[rows] @ proportions(self.fit, corpus, rows, self.chains, True, self.seed)
        except ValueError:  # a story whose topics cannot be folded in
            return None
        return found / found.sum()

    @cached_property
    def leading_terms(self) -> list[list[str]]:
        """Terms of each topic by relevance."""
        return self.terms_of(self.beta)

    def terms_of(self, beta: np.ndarray, by: str = "relevance") -> list[list[str]]:
        """Leading terms of topics."""
        chosen = leading(term_scores(beta, self.counts, by), TERMS)
        return [[str(self.fit.vocabulary[v]) for v in row] for row in chosen]

    def words(self, n: int = 3) -> list[str]:
        """A few leading terms of each topic."""
        return [" ".join(terms[:n]) for terms in self.leading_terms]

    @cached_property
    def titles(self) -> list[str]:
        """What topics are called: by name, or by number."""
        return [str(name) if self.fit.topic_names is not None else f"topic {name}" for name in self.names]

    def labels(self, n: int = 3) -> list[str]:
        """The number or name of each topic and a few of its terms."""
        return [f"{name}: {words}" for name, words in zip(self.names, self.words(n), strict=True)]

    @cached_property
    def panels(self) -> dict[str, np.ndarray]:
        """Columns of coefficients, name -> draws [chain, draw, topic], some of the first."""
        return dict(list(panels_of(self.fit).items())[:MOST_PANELS])

    @property
    def at_a_point(self) -> bool:
        """Whether coefficients are an optimum without an interval."""
        return all(value.shape[1] == 1 or np.ptp(value, axis=1).max() == 0 for value in self.panels.values())

    def about_coefficients(self) -> str:
        """What pictures of coefficients show, and how far their intervals can be believed."""
        if self.at_a_point:
            return (
                f"Coefficients of topics at the optimum that {self.fit.engine} found: points, which have no intervals."
            )
        caption = "Coefficients of topics, mean and 90% interval"
        caption += ", a colour a chain." if self.num_chains > 1 else "."
        return caption + self.too_narrow() + self.serving()

    def too_narrow(self) -> str:
        """A sentence on the intervals of an approximation."""
        if self.fit.engine not in ("vem", "svi"):
            return ""
        return f" Intervals of a fit by {self.fit.engine} are too narrow: it leaves out much of what is not known."

    def coefficients(self) -> Section | None:
        if not self.panels:
            return None
        found, caption = panels_of(self.fit), self.about_coefficients()
        if self.num_topics > MOST_IN_FOREST:
            caption += f" The {MOST_IN_FOREST} topics with the largest are shown; the table above has all."
        if len(found) > len(self.panels):
            caption += f" The first {len(self.panels)} of {len(found)} columns are shown."
        return Section("coefficients", "Coefficients", drawing(self.forest(MOST_IN_FOREST), caption))

    def forest(self, most: int) -> str:
        """So many topics with the largest coefficients, the largest on top."""
        told = "Forest plot of the topics' coefficients; the table of topics has the numbers."
        return forest(self.panels, self.labels(), leading_rows(self.panels, most)[::-1], told)

    def serving(self) -> str:
        """A sentence for a fit with a weight of the response."""
        why = serving(self.fit.info)
        return f" {why[0].upper()}{why[1:]}." if why else ""

    def objective(self) -> tuple[list[str], str] | None:
        """Pictures of what a variational engine climbed, and a caption."""
        info = self.fit.info
        if "losses" not in info and "bound" not in info:
            return None
        name, unit = ("negative bound", "step") if "losses" in info else ("bound", "iteration")
        values = info["losses" if "losses" in info else "bound"]
        return objective(values, name, unit), f"The {name} at each {unit}: level where it rests."

    @cached_property
    def traced(self) -> list[Series]:
        """Quantities whose draws are worth looking at."""
        found = [s for s in series(self.fit) if np.isfinite(s.values).all()]
        return self._worth_tracing(found)

    def convergence(self) -> Section:
        parts = []
        climbed = self.objective()
        if self.serving():
            told = f"{self.serving().strip()} Chains that differ are averaged: R-hat is told here, and judges nothing."
            parts.append(note(told if climbed is None else self.serving().strip()))
        if climbed is not None:
            (whole, half), caption = climbed
            parts.append(pictures(drawing(whole, caption), drawing(half, "The second half by itself.")))
            parts.append(note("Draws from an approximation are independent: traces and R-hat would say nothing."))
        elif self.traced:
            parts.append(note("Draws in their order, a colour a chain. Chains that mix look alike and wander nowhere."))
            parts.append(
                pictures(*(drawing(trace(s.quantity, s.values), "", s.quantity) for s in self.traced), look="small")
            )
            if self.num_chains > 1:
                parts.append(
                    note(
                        "Ranks of each chain's draws among all, minus uniform ones: far outside the band chains disagree."
                    )
                )
                parts.append(
                    pictures(*(drawing(ranks(s.quantity, s.values), "", s.quantity) for s in self.traced), look="small")
                )
            else:
                parts.append(note("One chain: rank plots compare chains, so there are none."))
        parts.append(self._numbers())
        return Section("convergence", "Convergence", "".join(parts))

    def _worth_tracing(self, found: list[Series]) -> list[Series]:
        """Up to six quantities that do not depend on topics' numbers, and the six worst coefficients."""
        r_hat = self.diagnosis.numbers["r_hat"].to_dict()
        worst = sorted(
            (s for s in found if s.kind == "coefficient"), key=lambda s: -np.nan_to_num(r_hat.get(s.quantity, 0.0))
        )
        invariant = [s for s in found if s.kind == "label-invariant"]
        scalars = [s for s in found if s.kind == "parameter" and s.topic is None]
        chosen = [*(invariant[:1] + scalars + invariant[1:])[:6], *worst[:6]]
        return chosen or found[:6]

    def _numbers(self) -> str:
        frame = self.diagnosis.numbers.reset_index()
        caption = "Convergence of each quantity; what cannot be known is a dash."
        if len(frame) > MOST_NUMBERS:
            worst = frame["r_hat"].astype(float).fillna(np.inf).sort_values(ascending=False, kind="stable").index
            frame = frame.loc[np.sort(worst[:MOST_NUMBERS])]
            caption += f" The {MOST_NUMBERS} with the largest R-hat are shown."
        names = {"quantity": "Quantity", "kind": "Kind", "mean": "Mean", "sd": "SD", "mcse": "MCSE", "r_hat": "R-hat",
                 "ess_bulk": "ESS bulk", "ess_tail": "ESS tail", "passes": "Outcome"}  # fmt: skip
        places = {"r_hat": 3, "ess_bulk": 0, "ess_tail": 0}
        columns = [Column(text, key not in ("quantity", "kind", "passes")) for key, text in names.items()]
        rows = []
        for record in frame.to_dict("records"):
            row: list[Any] = [record["quantity"], record["kind"]]
            for key in list(names)[2:-1]:
                value = known(record[key])
                row.append(fixed(value, places[key]) if key in places else number(value))
            rows.append([*row, outcome(None if pd.isna(record["passes"]) else record["passes"])])
        return table("numbers", caption, columns, rows, "Filter quantities")

    def scores(self) -> Section | None:
        if self.test is None:
            return None
        rows: list[tuple[str, float, float, str]] = []
        refused = ""
        try:
            words = perplexity(self.fit, self.test, seed=self.seed)
            meaning = f"by {words.method}; lower is better, {self.fit.corpus.num_terms} is to know nothing"
            rows.append(("perplexity a word", words.perplexity, words.perplexity_error, meaning))
            if self.y_test is not None:
                for name, row in scores(self.fit, self.test, self.y_test, seed=self.seed).iterrows():
                    label = name if isinstance(name, str) else " ".join(map(str, name))
                    rows.append((label, row["value"], row["error"], row["meaning"]))
        except ValueError as error:  # a story whose topics cannot be folded in
            refused = note(f"Not everything is scored. {error}")
        columns = [
            Column("Score"),
            Column("Value", True),
            Column("Error", True, "Standard error"),
            Column("What it means"),
        ]
        cells = [
            [name, number(known(value), 4), number(known(error), 2), Cell(meaning, meaning, "meaning")]
            for name, value, error, meaning in rows
        ]
        caption = f"On {len(self.test)} held-out documents"
        return Section("scores", "Held-out scores", table("score-table", caption, columns, cells) + refused)

    def browser(self) -> Section | None:
        if not len(self.shown) or not self.num_topics:
            return None
        title = "Documents"
        places = np.searchsorted(self.rows, self.shown)
        prediction = None if self.prediction is None else some(self.prediction, places)
        scale = self.fit.info.get("standardised", (0.0, 1.0))
        try:
            found, ranges = browsed(
                self.fit, self.corpus, self.y, self.shown, prediction, self.beta, chains=self.chains,
                fitted=self.test is None, scale=scale, seed=self.seed,
            )  # fmt: skip
        except ValueError as error:  # a story whose topics cannot be folded in
            return Section("documents", title, note(f"No documents are shown. {error}"))
        words = f"{len(self.shown)} of {len(self.corpus)} {self.what}, drawn at random. "
        words += (
            "A word has the colour of its most probable topic, as a line below it where that has less than half of it."
        )
        if not self.same:
            words += " Chains found different topics, so these are the first chain's."
        if self.corpus.texts is None:
            words += " The corpus has kept no texts (keep_texts=True keeps them), so the counted words are shown."
        return Section("documents", title, note(words) + page_of_documents(found, ranges, self.titles, self.words(4)))


def some(prediction: Any, places: np.ndarray) -> Any:
    """A prediction of some of its documents, or a dict of them."""
    if isinstance(prediction, dict):
        return {name: part.take(places) for name, part in prediction.items()}
    return prediction.take(places)
