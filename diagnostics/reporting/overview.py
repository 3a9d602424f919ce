"""The first screen: the verdict in a sentence, what was fitted, and the three pictures that say most."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks.response_checks import labelled
from ..convergence.diagnosis import Diagnosis
from ..convergence.reliance import NOT, RELY
from ..drawing.chains import trace
from ..drawing.forest import sizes
from ..drawing.map import Map
from .page import (
    Cell,
    Column,
    Section,
    drawing,
    facts,
    listed,
    number,
    outcome,
    pictures,
    sentences,
    table,
    verdict,
)
from .response_section import first_picture
from .sections import Sections, known
from .topic_section import map_caption

ROWS = 8  # topics in a picture of the first screen
PICTURES = 3


def judge(diagnosis: Diagnosis) -> str:
    """good if everything can be relied on, bad if nothing can, caution in between."""
    grades = set(diagnosis.reliance["grade"])
    return {frozenset({RELY}): "good", frozenset({NOT}): "bad"}.get(frozenset(grades), "caution")


def overview(diagnosis: Diagnosis, found: Sections, made: Map | None) -> str:
    """The verdict's first sentence, the data, and pictures."""
    first = sentences(diagnosis.verdict)[0]
    return verdict(judge(diagnosis), first) + facts(data(found)) + pictures(*_chosen(found, made), look="three")


def data(found: Sections) -> dict[str, Any]:
    """What was fitted and how, in few numbers."""
    fit, corpus = found.fit, found.fit.corpus
    told: dict[str, Any] = {
        "documents": f"{len(corpus):,}",
        "words": f"{corpus.num_tokens:,}, {corpus.num_terms:,} distinct",
    }
    if found.num_topics:
        told["topics"] = found.num_topics
    if fit.y is not None:
        parts = fit.y if isinstance(fit.y, dict) else {"response": fit.y}
        told["with a response"] = f"{len(labelled(fit.y)):,}"
        if len(parts) > 1:
            told["responses"] = ", ".join(parts)
    if fit.classes is not None:
        told["classes"] = len(fit.classes)
    shape = next(iter({**fit.snapshots, **fit.draws}.values())).shape
    told["fitted by"] = f"{fit.engine}, {_chains(fit, shape)}"
    if found.test is not None:
        told["held out"] = f"{len(found.test):,} documents"
    return told


def _chains(fit: Any, shape: tuple[int, ...]) -> str:
    if fit.engine in ("gibbs", "nuts"):
        draws = max((value.shape[1] for value in fit.draws.values()), default=shape[1])
        return f"{shape[0]} {'chain' if shape[0] == 1 else 'chains'} of {draws:,} draws"
    return "an approximation" if "losses" in fit.info else "one optimum"


def _chosen(found: Sections, made: Map | None) -> list[str]:
    """Up to three pictures: map, coefficients, predictions; where there are none sizes, then how the engine came there."""
    shown = []
    if made is not None:
        shown.append(drawing(made.svg + made.key, map_caption(made, found)))
    if found.panels:
        most = f" The {ROWS} largest of {found.num_topics}." if found.num_topics > ROWS else ""
        shown.append(drawing(found.forest(ROWS), found.about_coefficients() + most))
    if (drawn := first_picture(found)) is not None:
        shown.append(drawn)
    if len(shown) < PICTURES and found.num_topics and found.usage is not None:
        largest = np.argsort(-found.usage, kind="stable")[:ROWS]
        told = f"Shares of words of the largest topics of {found.num_topics}."
        shown.append(drawing(sizes(found.usage, found.labels(), largest, told), told))
    if len(shown) < PICTURES and (climbed := found.objective()) is not None:
        shown.append(drawing(climbed[0][0], climbed[1]))
    elif len(shown) < PICTURES and found.traced:
        first = found.traced[0]
        shown.append(drawing(trace(first.quantity, first.values), f"Draws of {first.quantity}, a colour a chain."))
    return shown[:PICTURES]


def reasons(diagnosis: Diagnosis) -> Section:
    """The rest of the verdict, and what it rests on."""
    body = listed(sentences(diagnosis.verdict)[1:]) + _reliance(diagnosis) + _checks(diagnosis)
    return Section("verdict", "What can be relied on, and why", body)


def _reliance(diagnosis: Diagnosis) -> str:
    looks = {RELY: Cell(RELY, 3, "good"), NOT: Cell(NOT, 0, "bad")}
    rows = [
        [what, looks.get(row["grade"], Cell(row["grade"], 1, "caution")), Cell(row["why"], row["why"], "meaning")]
        for what, row in diagnosis.reliance.iterrows()
    ]
    return table("reliance", "What can be relied on", [Column("What"), Column("Grade"), Column("Why")], rows)


def _checks(diagnosis: Diagnosis) -> str:
    columns = [
        Column("Check"), Column("Speaks for"), Column("Value", True), Column("Threshold", True), Column("Outcome"),
        Column("What it means"),
    ]  # fmt: skip
    rows = [
        [name, row["about"], number(known(row["value"])), number(known(row["threshold"])), outcome(row["passes"]),
         Cell(row["meaning"], row["meaning"], "meaning")]
        for name, row in diagnosis.checks.iterrows()
    ]  # fmt: skip
    return table("checks", "What the verdict rests on", columns, rows)
