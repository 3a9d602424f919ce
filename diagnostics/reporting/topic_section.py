"""The report's section on topics: the map, the terms by a relevance that the reader may choose, and the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from topiczoo.inference.posterior.leading_terms import UNSEEN, WEIGHTS, leading, term_scores

from ..checks.word_checks import check_words
from ..drawing.charts import plain
from ..drawing.map import Map, topic_map
from ..scoring.topic_quality import coherence
from .page import Cell, Column, Section, embedded, fixed, safe, table
from .sections import TERMS, Sections

MOST_TOKENS = 100_000  # in the check of words
FAITHFUL = 0.2  # share of topics' spread that a map must keep to be read without a caution
STEPS = np.arange(11) / 10  # of the slider: lambda of Sievert & Shirley

# what the page's script fills; without it the table has the terms at the usual lambda
SLIDER = """<div class="relevance" hidden>
<p><label for="relevance">Relevance of terms, λ = <output id="relevance-value" for="relevance">{usual}</output></label>
<input id="relevance" type="range" min="0" max="1" step="0.1" value="{usual}">
<span class="note">1 orders terms by their probability in the topic, 0 by how much more frequent they are in it than
elsewhere (Sievert &amp; Shirley 2014). The table below follows.</span></p>
<p><label for="relevance-topic">Topic</label> <select id="relevance-topic">{options}</select>
<span class="note">Below, a term's share of the topic, and how many times its share of all words that is.</span></p>
<div class="bars" id="relevance-terms" aria-live="polite"></div>
</div>
"""


def map_of(found: Sections) -> Map | None:
    """The map of topics, for two or more."""
    if found.num_topics < 2:
        return None
    columns = {name: value[found.chains].mean((0, 1)) for name, value in found.panels.items()}
    usage = np.ones(found.num_topics) if found.usage is None else found.usage
    return topic_map(found.beta, usage, [str(name) for name in found.names], found.words(2), columns)


def map_caption(made: Map, found: Sections) -> str:
    """What the map shows, and how far it can be believed."""
    colour = "the colour is the coefficient" if found.panels else "the colour is that of its words in documents"
    if len(found.panels) > 1:
        colour = "the colour is that of its largest coefficient"
    area = "Shares of words are not known" if found.usage is None else "The area is the share of words"
    hint = "" if made.kept >= FAITHFUL else ", little, so that nearness is but a hint"
    return (
        f"Topics that are near use the same words (Jensen-Shannon distance; the plane keeps {made.kept:.0%} of their "
        f"spread{hint}). {area}, {colour}."
    ) + ("" if found.same else " Chains found different topics: these are the first chain's.")


def topics(found: Sections) -> Section:
    """The slider and the table of topics."""
    options = "".join(
        f'<option value="{topic}">{safe(plain(label, 80))}</option>' for topic, label in enumerate(found.labels(3))
    )
    body = SLIDER.format(usual=WEIGHTS["relevance"], options=options) + embedded("relevance-data", relevance(found))
    return Section("topics-section", "Topics", body + _table(found))


def relevance(found: Sections) -> dict[str, Any]:
    """All terms that lead a topic at any step of the slider, with what their relevance is made of.

    ``terms`` and their ``share`` of all words, and for each topic in ``topics`` places of terms and their probabilities.
    """
    often, special = (term_scores(found.beta, found.counts, "relevance", weight) for weight in (1, 0))
    chosen = [leading(weight * often + (1 - weight) * special, TERMS) for weight in STEPS]
    places: dict[int, int] = {}
    listed = []
    for topic, columns in enumerate(np.concatenate(chosen, 1)):
        row: list[float] = []
        for column in dict.fromkeys(columns.tolist()):
            row += [places.setdefault(column, len(places)), float(f"{found.beta[topic, column]:.5g}")]
        listed.append(row)
    own = np.maximum(found.counts, UNSEEN)[list(places)] / max(found.counts.sum(), 1)
    return {
        "terms": [str(found.fit.vocabulary[column]) for column in places],
        "share": [float(f"{value:.5g}") for value in own],
        "topics": listed,
        "shown": TERMS,
    }


def _table(found: Sections) -> str:
    columns = [Column("Topic", True, "The number or name it has everywhere"),
               Column("Leading terms", False, "Frequent in the topic, and more so than elsewhere (relevance)"),
               Column("Prevalence", True, "Share of all words")]  # fmt: skip
    for name in found.panels:
        meaning = "Mean of the coefficient" if found.serving() else "Posterior mean of the coefficient"
        columns += [Column(name, True, meaning)]
        columns += [] if found.at_a_point else [Column(f"{name} 90%", True, "90% interval." + found.too_narrow())]
    several = found.num_chains > 1
    if several:
        meaning = "Likeness across chains, as a share of likeness within a chain; a topic that differs is no match"
        columns.append(Column("Stability", True, meaning))
    columns.append(Column("Coherence", True, "NPMI of its most probable terms: how far they share documents, -1 to 1"))
    checked = _check_words(found)
    if checked is not None:
        meaning = (
            "How much more its words depend on the document than the story says, in standard deviations; 3 is much"
        )
        columns.append(Column("Word check", True, meaning))
    of_chains = [] if found.same else [found.terms_of(found.fit.topic_terms(c)) for c in range(found.num_chains)]
    coherent = coherence(found.terms_of(found.beta, "probability"), found.fit.corpus)["coherence"]
    quantiles = {name: np.quantile(value, [0.05, 0.95], axis=(0, 1)) for name, value in found.panels.items()}
    rows = []
    for topic in range(found.num_topics):
        facts = found.alignment.loc[topic]
        matched = not several or bool(facts["matched"])
        own = found.leading_terms[topic]
        terms = Cell(own, " ".join(own), "terms")
        if not matched:
            lines = "\n".join(f"chain {c}: {' '.join(lists[topic])}" for c, lists in enumerate(of_chains))
            terms = Cell(lines, " ".join(own), "several")
        row = [
            Cell(str(found.names[topic]), topic),
            terms,
            fixed(None if found.usage is None else 100 * found.usage[topic], 1, "%"),
        ]
        for name, value in found.panels.items():
            row.append(fixed(value[..., topic].mean()))
            if not found.at_a_point:
                low, high = quantiles[name][:, topic]
                row.append(Cell(f"{fixed(low).text} to {fixed(high).text}", float(low)))
        if several:
            stable = fixed(facts["stability"])
            row.append(stable if matched else Cell(f"differs {stable.text}", stable.value, "caution"))
        row.append(fixed(coherent[topic]))
        if checked is not None:
            row.append(fixed(checked[topic], 1))
        rows.append(row)
    caption = "Topics, most used first. A heading sorts; hovering over it tells what it means."
    if not found.same:
        caption += (
            " A topic that differs is another one in each chain: each chain's terms are shown, intervals span all."
        )
    if found.fit.graph.of_labels:
        caption += " Each class has its own shade of a topic: these are means over classes."
    return table("topics", caption + found.serving(), columns, rows, "Filter topics by their words")


def _check_words(found: Sections) -> pd.Series | None:
    """Mimno & Blei's check of each topic, for stories that have no response to check."""
    if found.fit.y is not None:
        return None
    corpus = found.fit.corpus
    order = np.random.default_rng(found.seed).permutation(len(corpus))
    few = np.sort(order[: max(2, np.searchsorted(np.cumsum(corpus.lengths[order]), MOST_TOKENS))])
    try:
        return check_words(found.fit, corpus[few], n=1, seed=found.seed).topics["deviation"]
    except ValueError:  # one topic a document, or topics that cannot be folded in
        return None


def classes(found: Sections) -> Section | None:
    """What each class says more than others, for a story whose words depend on it."""
    tables = []
    for site in [name for name in found.fit.graph.of_labels if name in found.fit.sites]:
        deviations = found.fit.deviations(site, TERMS)
        if "label" not in deviations:
            continue
        rows = [
            [str(label), Cell([str(term) for term in part["term"]], None, "terms"), fixed(part["deviation"].iloc[0])]
            for label, part in deviations.groupby("label", sort=False)
        ]
        columns = [Column("Class"), Column("Leading terms"), Column("Largest", True, f"{site} of the first term")]
        caption = f"Terms with the largest {site} of each class, the largest first"
        caption += "; the first chain's." if found.num_chains > 1 else "."
        tables.append(table(f"classes-{site}", caption, columns, rows, "Filter classes by their words"))
    return Section("classes-section", "Classes", "".join(tables)) if tables else None
