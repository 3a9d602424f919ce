"""The report's sections, each from one aligned fit; a section that has nothing to say is None."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.inference.posterior.leading_terms import leading, term_scores
from topiczoo.inference.posterior.naming import topic_labels
from topiczoo.inference.posterior.posterior import serving

from ..checks.response_checks import CLASS, coverage, labelled, plot_response, plot_response_pit, take, to_tree
from ..checks.word_checks import check_words
from ..convergence.diagnosis import Diagnosis
from ..convergence.quantities import Series, series
from ..plotting.coefficients import panels_of
from ..scoring.held_out import perplexity
from ..scoring.predictive_scores import scores
from ..scoring.topic_quality import coherence
from . import figures
from .documents import browser
from .page import Cell, Column, Section, embedded, fixed, note, number, outcome, picture, pictures, table
from .story_page import BROWSER

MOST_CHECKED = 1000  # documents in the predictive checks
MOST_TOKENS = 100_000  # in the check of words
MOST_NUMBERS = 600  # rows in the table of R-hats
MOST_PANELS = 6  # columns of coefficients in the table and the forest
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
        self.names = topic_labels(self.fit, self.num_topics)  # numbers, where topics have none
        # averages over chains mean something only for topics that all chains have
        self.same = not self.fit.alignment.unmatched
        self.chains = range(self._num_chains) if self.same else [0]
        self.corpus: Corpus = self.fit.corpus if test is None else test
        self.y = self.fit.y if test is None else y_test
        self.what = "fitted documents" if test is None else "held-out documents"
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.corpus))
        self.shown = np.sort(order[:documents])
        self.rows = np.sort(order[: max(documents, MOST_CHECKED if self.y is not None else 0)])
        self.prediction, self.no_prediction = self._predict()

    @property
    def _num_chains(self) -> int:
        return self.fit.alignment.permutations.shape[0]

    def _predict(self) -> tuple[Any, str]:
        if self.fit.y is None or not len(self.rows):
            return None, ""
        try:
            return self.fit.predict(self.corpus[self.rows], seed=self.seed), ""
        except ValueError as error:  # a story whose topics cannot be folded in: said in the report
            return None, str(error)

    def labels(self, n: int = 3) -> list[str]:
        """A few leading terms of each topic, after its name if it has one."""
        named = self.fit.topic_names is not None
        return [
            (f"{name}: " if named else "") + " ".join(terms[:n])
            for name, terms in zip(self.names, self._terms(self.chains), strict=True)
        ]

    def _terms(self, chains: Any, by: str = "relevance") -> list[list[str]]:
        beta = np.mean([self.fit.topic_terms(chain) for chain in chains], axis=0)
        scores = term_scores(beta, np.asarray(self.fit.corpus.counts.sum(0)), by)
        return [[str(self.fit.vocabulary[v]) for v in row] for row in leading(scores, TERMS)]

    def _coefficients(self) -> dict[str, np.ndarray]:
        """Columns of coefficients, name -> draws [chain, draw, topic]."""
        return panels_of(self.fit)

    def topics(self) -> Section:
        coefficients = self._coefficients()
        columns = [Column("Topic", True, "The number or name it has everywhere"),
                   Column("Leading terms", False, "Frequent in the topic, and more so than elsewhere (relevance)"),
                   Column("Prevalence", True, "Share of all words")]  # fmt: skip
        for name in list(coefficients)[:MOST_PANELS]:
            columns += [
                Column(
                    name, True, "Mean of the coefficient" if self._serving() else "Posterior mean of the coefficient"
                ),
                Column(f"{name} 90%", True, "90% interval"),
            ]
        several = self._num_chains > 1
        if several:
            meaning = "Likeness across chains, as a share of likeness within a chain; a topic that differs is no match"
            columns.append(Column("Stability", True, meaning))
        columns.append(
            Column("Coherence", True, "NPMI of its most probable terms: how far they share documents, -1 to 1")
        )
        checked = self._check_words()
        if checked is not None:
            meaning = (
                "How much more its words depend on the document than the story says, in standard deviations; 3 is much"
            )
            columns.append(Column("Word check", True, meaning))
        of_chains = [self._terms([chain]) for chain in range(self._num_chains)]
        pooled = self._terms(range(self._num_chains))
        coherent = coherence(self._terms(self.chains, "probability"), self.fit.corpus)["coherence"]
        rows = []
        for topic in range(self.num_topics):
            facts = self.alignment.loc[topic]
            matched = not several or bool(facts["matched"])
            lines = [pooled[topic]] if matched else [terms[topic] for terms in of_chains]
            shown = [" ".join(terms) for terms in lines]
            text = shown[0] if matched else "\n".join(f"chain {c}: {line}" for c, line in enumerate(shown))
            name = self.names[topic]
            row = [
                Cell(str(name), topic),
                Cell(text, shown[0], "terms" if matched else "several"),
                fixed(100 * facts["usage"], 1, "%"),
            ]
            for value in list(coefficients.values())[:MOST_PANELS]:
                low, high = np.quantile(value[..., topic], [0.05, 0.95])
                row += [fixed(value[..., topic].mean()), Cell(f"{fixed(low).text} to {fixed(high).text}", float(low))]
            if several:
                stable = fixed(facts["stability"])
                row.append(stable if matched else Cell(f"differs {stable.text}", stable.value, "caution"))
            row.append(fixed(coherent[topic]))
            if checked is not None:
                row.append(fixed(checked[topic], 1))
            rows.append(row)
        caption = "Topics, most used first. A heading sorts; hovering over it tells what it means."
        if not self.same:
            caption += (
                " A topic that differs is another one in each chain: each chain's terms are shown, intervals span all."
            )
        caption += self._serving()
        return Section(
            "topics-section", "Topics", table("topics", caption, columns, rows, "Filter topics by their words")
        )

    def classes(self) -> Section | None:
        """What each class says more than others, for a story without topics."""
        sites = [name for name in self.fit.graph.of_labels if name in self.fit.sites]
        tables = []
        for site in sites:
            leading = self.fit.deviations(site, TERMS)
            if "label" not in leading:
                continue
            rows = [
                [str(label), Cell(" ".join(part["term"]), None, "terms"), fixed(part["deviation"].iloc[0])]
                for label, part in leading.groupby("label", sort=False)
            ]
            columns = [Column("Class"), Column("Leading terms"), Column("Largest", True, f"{site} of the first term")]
            caption = f"Terms with the largest {site} of each class, the largest first"
            caption += "; the first chain's." if self._num_chains > 1 else "."
            tables.append(table(f"classes-{site}", caption, columns, rows, "Filter classes by their words"))
        return Section("classes-section", "Classes", "".join(tables)) if tables else None

    def _check_words(self) -> pd.Series | None:
        """Mimno & Blei's check of each topic, for stories that have no response to check."""
        if self.fit.y is not None:
            return None
        corpus = self.fit.corpus
        order = np.random.default_rng(self.seed).permutation(len(corpus))
        few = np.sort(order[: max(2, np.searchsorted(np.cumsum(corpus.lengths[order]), MOST_TOKENS))])
        try:
            return check_words(self.fit, corpus[few], n=1, seed=self.seed).topics["deviation"]
        except ValueError:  # one topic a document, or topics that cannot be folded in
            return None

    def coefficients(self) -> Section | None:
        found = self._coefficients()
        if not found:
            return None
        panels = dict(list(found.items())[:MOST_PANELS])
        labels = [
            f"{label}  {topic}" if self.fit.topic_names is None else label for topic, label in enumerate(self.labels())
        ]
        caption = "Mean and" if self._serving() else "Posterior mean and"
        caption += " 90% interval of each topic's coefficient"
        caption += ", a colour a chain." if self._num_chains > 1 else "."
        caption += self._serving()
        if self.num_topics > figures.MOST_IN_FOREST:
            caption += f" The {figures.MOST_IN_FOREST} topics with the largest are shown; the table above has all."
        if len(found) > len(panels):
            caption += f" The first {len(panels)} of {len(found)} columns are shown."
        alt = "Forest plot of the topics' coefficients; the table of topics has the numbers."
        return Section("coefficients", "Coefficients", picture(figures.forest(panels, labels), alt, caption))

    def _serving(self) -> str:
        """A sentence for a fit with a weight of the response."""
        why = serving(self.fit.info)
        return f" {why[0].upper()}{why[1:]}." if why else ""

    def convergence(self) -> Section:
        info = self.fit.info
        found = [s for s in series(self.fit) if np.isfinite(s.values).all()]
        parts = []
        if self._serving():
            told = f"{self._serving().strip()} Chains that differ are averaged: R-hat is told here, and judges nothing."
            parts.append(note(told if "losses" not in info and "bound" not in info else self._serving().strip()))
        if "losses" in info or "bound" in info:
            name, unit = ("negative bound", "step") if "losses" in info else ("bound", "iteration")
            image = figures.objective(info["losses" if "losses" in info else "bound"], name, unit)
            parts.append(picture(image, f"The {name} by {unit}.", f"The {name} at each {unit}: level where it rests."))
            parts.append(note("Draws from an approximation are independent: traces and R-hat would say nothing."))
        elif found:
            shown = self._worth_tracing(found)
            caption = "Draws in their order, a colour a chain. Chains that mix look alike and wander nowhere."
            parts.append(picture(figures.traces(shown), "Trace plots; the table below has the numbers.", caption))
            if self._num_chains > 1:
                caption = (
                    "Ranks of each chain's draws among all, minus uniform ones: far outside the band chains disagree."
                )
                parts.append(picture(figures.ranks(shown), "Rank plots; the table below has the numbers.", caption))
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

    def response(self) -> Section | None:
        if self.fit.y is None:
            return None
        title, anchor = "Predictive checks", "checks-of-response"
        if self.y is None:
            return Section(
                anchor, title, note("The held-out documents came without responses: nothing to check against.")
            )
        if self.prediction is None:
            return Section(anchor, title, note(f"No predictions. {self.no_prediction}"))
        places = labelled(take(self.y, self.rows))
        if not len(places):
            return Section(anchor, title, note("None of these documents has a response: nothing to check against."))
        checked = to_tree(
            _some(self.prediction, places), take(self.y, self.rows[places]), self.corpus.names[self.rows[places]]
        )
        what = f"{len(places)} {self.what}, told from their words alone"
        layout: dict[str, Any] = {"figure_kwargs": {"figsize": (4.0, 2.6)}}
        with figures.drawing():
            one = len(checked["observed_data"].data_vars) == 1
            options = layout if one else {}
            shown = [
                picture(
                    figures.of_plots(plot_response(checked, **options)), "Distribution of observed and predicted responses.",
                    f"Observed responses (dark) over predicted ones (light), of {what}.",
                ),
                picture(
                    figures.of_plots(plot_response_pit(checked, **options)), "Calibration of the predictions.",
                    "Calibration: the line stays inside the band (99%) if responses fall where they were predicted.",
                ),
            ]  # fmt: skip
            kinds = {value.attrs["kind"] for value in checked["observed_data"].data_vars.values()}
            if kinds != {CLASS}:
                image = figures.of_plots(plot_response_pit(checked, coverage=True, **options))
                caption = "Coverage of central intervals: above zero they are too wide, below it too narrow."
                shown.append(picture(image, "Coverage of central predictive intervals.", caption))
        return Section(anchor, title, pictures(*shown) + self._coverage(checked))

    def _coverage(self, checked: Any) -> str:
        frame = coverage(checked)
        if not len(frame):
            return ""
        columns = [Column("Response"), Column("Interval", True), Column("Covered", True), Column("Error", True),
                   Column("Outcome")]  # fmt: skip
        rows = []
        for record in frame.to_dict("records"):
            near = abs(record["covered"] - record["level"]) <= 3 * record["error"] + 1e-9
            word = Cell("as it should", 1, "good") if near else Cell("off", 0, "bad")
            rows.append(
                [record["response"], *(fixed(100 * record[key], 1, "%") for key in ("level", "covered", "error")), word]
            )
        caption = f"Share of {frame['documents'].iloc[0]} {self.what} inside their central predictive interval"
        return table("coverage", f"{caption} (off: more than three standard errors away)", columns, rows)

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
        prediction = None if self.prediction is None else _some(self.prediction, places)
        scale = self.fit.info.get("standardised", (0.0, 1.0))
        try:
            data = browser(
                self.fit, self.corpus, self.y, self.shown, prediction, self.labels(4), chains=self.chains,
                fitted=self.test is None, scale=scale, seed=self.seed,
            )  # fmt: skip
        except ValueError as error:  # a story whose topics cannot be folded in
            return Section("documents", title, note(f"No documents are shown. {error}"))
        words = f"{len(self.shown)} of {len(self.corpus)} {self.what}, drawn at random. "
        words += "A word has the colour of its most probable topic; the arrow keys walk from word to word."
        if not self.same:
            words += " Chains found different topics, so these are the first chain's."
        return Section("documents", title, note(words) + BROWSER + embedded("browser-data", data))


def _some(prediction: Any, places: np.ndarray) -> Any:
    """A prediction of some of its documents, or a dict of them."""
    if isinstance(prediction, dict):
        return {name: part.take(places) for name, part in prediction.items()}
    return prediction.take(places)
