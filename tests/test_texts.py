"""Counted terms are found in a text as it was written."""

from __future__ import annotations

import pytest

from topiczoo.diagnostics.reporting.document_page import page_of_documents
from topiczoo.diagnostics.reporting.texts import marks


def found(text, terms):
    return [(text[mark.start : mark.end], terms[mark.place]) for mark in marks(text, terms)]


def test_case_accents_and_what_stands_around_a_word_do_not_matter():
    text = 'NAÏVE café—don\'t; cafés, "Straße"!'
    terms = ["naive", "café", "don", "strasse"]
    assert found(text, terms) == [("NAÏVE", "naive"), ("café", "café"), ("don", "don"), ("Straße", "strasse")]


def test_the_longest_term_is_meant_and_no_two_overlap():
    terms = ["new", "york", "new york", "york city hall"]
    assert found("New York, new car, York City Hall", terms) == [
        ("New York", "new york"), ("new", "new"), ("York City Hall", "york city hall"),
    ]  # fmt: skip


def test_words_are_found_within_runs_where_a_script_has_no_spaces():
    assert found("東京都に行く", ["東京", "行く", "京都"]) == [("東京", "東京"), ("行く", "行く")]
    assert found("running", ["run"]) == []


@pytest.mark.parametrize("terms", [[], ["", "!!", "..."]])
def test_terms_without_a_letter_are_found_nowhere(terms):
    assert marks("a text ...", terms) == []


def document(text, words):
    return {"name": "d", "words": words, "left": 0, "text": text, "shares": [(0, 0.6), (1, 0.4)], "responses": []}


def test_a_text_keeps_every_character_and_says_what_was_not_found():
    words = [("good", 2, 0, 90), ("food", 1, 1, 40), ("eat", 1, 1, 80)]
    made = page_of_documents([document("Good <food>,\n\ngood & eaten.", words)], {}, ["topic 0", "topic 1"], ["a", "b"])
    assert '<b class=t0>Good</b> &lt;<b class="t1 u">food</b>&gt;,\n\n<b class=t0>good</b> &amp; eaten.</p>' in made
    assert "1 of 3 counted terms are not found in the text as it is written" in made and 'data-p="80">eat</b>' in made


@pytest.mark.parametrize("text", ["word " * 400_000, "é" * 2_000_000, "no such term here. " * 100_000])
def test_long_texts_are_cut_and_say_so(text):
    made = page_of_documents([document(text, [("word", 400_000, 0, 90)])] * 20, {}, ["topic 0", "topic 1"], ["a", "b"])
    assert len(made.encode()) < 1.6e6
    assert f"of {len(text):,} characters are shown" in made
