"""Documents as elements of the page that open: they are read without the page's script, which only filters them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..drawing.charts import short
from .page import safe
from .texts import marks

MOST_BYTES = 1_300_000  # of all documents together
LEAST_BYTES = 2_500  # of a document at the least
SURE = 50  # percent: a word that is less of its topic is marked as unsure
MOST_RESPONSES = 12  # of a document
MARK = 24  # bytes around a word


def page_of_documents(
    documents: Sequence[Mapping[str, Any]], ranges: Mapping[str, Sequence[float | None]], names: Sequence[str],
    words: Sequence[str],
) -> str:  # fmt: skip
    """All documents, closed.

    Parameters
    ----------
    documents, ranges
        As :func:`.documents.browsed` gives them.
    names, words
        What each topic is called, and a few of its words.
    """
    room = max(LEAST_BYTES, MOST_BYTES // max(len(documents), 1))
    topics = [f"{name}: {own}" for name, own in zip(names, words, strict=True)]
    made = "".join(_document(document, ranges, topics, room) for document in documents)
    count = f"{len(documents)} documents"
    return (
        '<p class="filter" hidden><label for="document-filter">Filter documents by name or word</label> '
        '<input id="document-filter" type="search" autocomplete="off"> '
        f'<output id="document-count" for="document-filter">{count}</output></p>\n'
        f'<div class="documents" id="browser">{made}</div>\n'
    )


def _document(
    document: Mapping[str, Any], ranges: Mapping[str, Sequence[float | None]], topics: Sequence[str], room: int
) -> str:
    told = document["responses"]
    said = "; ".join(_in_short(response) for response in told[:3])
    legend = "".join(
        f'<li data-topic="{topic}"><span class="swatch t{topic}"></span><bdi>{safe(topics[topic])}</bdi> '
        f"{_percent(share)}</li>"
        for topic, share in document["shares"]
    )
    responses = "".join(_response(response, ranges) for response in told[:MOST_RESPONSES])
    if len(told) > MOST_RESPONSES:
        responses += f'<p class="note">{len(told) - MOST_RESPONSES} further responses are not shown.</p>'
    body = _text(document, room) if document["text"] is not None else _words(document["words"], room)
    left = document["left"]
    rest = f'<p class="note">{left} further distinct words, the rarest, are not coloured.</p>' if left else ""
    return (
        f'<details class="document"><summary><span class="title"><bdi>{safe(document["name"])}</bdi></span>'
        f'<span class="said"><bdi>{safe(said)}</bdi></span>{_strip(document["shares"])}</summary>'
        f'{responses}<ul class="legend">{legend}</ul>{body}{rest}</details>\n'
    )


def _percent(share: float) -> str:
    return "<1%".replace("<", "&lt;") if 0 < share < 0.005 else f"{100 * share:.0f}%"


def _strip(shares: Sequence[tuple[int, float]]) -> str:
    """The topics of a document side by side, each as wide as its share."""
    parts, left = [], 0.0
    for topic, share in shares:
        parts.append(f'<path class="topic t{topic}" d="M{left:.0f} 0h{1000 * share:.0f}v9H{left:.0f}z"/>')
        left += 1000 * share
    return (
        f'<svg class="strip" viewBox="0 0 1000 9" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'
    )


def _text(document: Mapping[str, Any], room: int) -> str:
    """The text as it was written, its counted words in the colours of their topics."""
    whole, words = document["text"], document["words"]
    text = whole[:room]
    parts, at, spent, seen = [], 0, 0, set()
    for start, end, place in marks(text, [word for word, *_ in words]):
        spent += len(text[at:end].encode("utf-8", "replace")) + MARK
        if spent > room:
            break
        _, _, topic, percent = words[place]
        look = f"t{topic}" if percent >= SURE else f'"t{topic} u"'
        parts.append(f"{safe(text[at:start])}<b class={look}>{safe(text[start:end])}</b>")
        seen.add(place)
        at = end
    else:
        rest = text[at:].encode("utf-8", "replace")[: room - spent].decode("utf-8", "ignore")
        parts.append(safe(rest))
        at += len(rest)
    shown = f'<p class="text" dir="auto">{"".join(parts)}{"…" if at < len(whole) else ""}</p>'
    if at < len(whole):
        return shown + f'<p class="note">The first {at:,} of {len(whole):,} characters are shown.</p>'
    missing = [word for place, word in enumerate(words) if place not in seen]
    if not missing:
        return shown
    told = (
        f'<p class="note">{len(missing)} of {len(words)} counted terms are not found in the text as it is written:</p>'
    )
    return shown + told + _words(missing, room)


def _words(words: Sequence[tuple[str, int, int, int]], room: int) -> str:
    """The counted words, those of a topic together, the surest first."""
    order = sorted(words, key=lambda word: (word[2], -word[3], -word[1], word[0]))
    parts, spent = [], 0
    for place, (term, count, topic, percent) in enumerate(order):
        times = f"<sub>×{count}</sub>" if count > 1 else ""
        unsure = "" if percent >= SURE else " u"
        shown = f'<b class="t{topic}{unsure}" data-p="{percent}">{safe(term)}{times}</b>'
        spent += len(shown.encode("utf-8", "replace"))
        if spent > room:
            parts.append(f'<span class="note">and {len(order) - place} more</span>')
            break
        parts.append(shown)
    return f'<p class="chips" dir="auto">{" ".join(parts)}</p>'


def number(value: float | str | None) -> str:
    """A response's number in few digits; a class by its name."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else short(float(f"{value:.3g}"))


def _in_short(response: Mapping[str, Any]) -> str:
    guess = response["label"] if "label" in response else response["mean"]
    observed = "" if response["y"] is None else f" {number(response['y'])},"
    return f"{response['name']}{observed} predicted {number(guess)}"


def _response(response: Mapping[str, Any], ranges: Mapping[str, Sequence[float | None]]) -> str:
    """A prediction in words, and where it lies in the range of all."""
    name, y = response["name"], response["y"]
    if "label" in response:
        observed = "" if y is None else f"; observed {number(y)}"
        chance = f"{100 * response['probability']:.0f}%"
        told = f"{name}: class {number(response['label'])} predicted with probability {chance}{observed}"
        return f'<p class="prediction"><bdi>{safe(told)}</bdi></p>'
    low, high = response["low"], response["high"]
    inside = "" if y is None else f", {'inside' if low <= y <= high else 'outside'}"
    observed = "not observed" if y is None else f"observed {number(y)}{inside}"
    told = f"{name}: predicted {number(response['mean'])}, 90% interval {number(low)} to {number(high)}; {observed}"
    least, most = (0.0 if end is None else end for end in ranges[name])

    def place(value: float) -> float:
        return 1000 * (value - least) / ((most - least) or 1.0)

    mark = "" if y is None else f'<path class="dots c1" stroke-width="9" d="M{place(y):.0f} 8h0"/>'
    scale = (
        '<svg class="scale" viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="frame" d="M0 15H1000"/><path class="wide" d="M{place(low):.0f} 8H{place(high):.0f}"/>'
        f'<path class="line c0" d="M{place(response["mean"]):.0f} 2V14"/>{mark}</svg>'
    )
    return f'<p class="prediction"><bdi>{safe(told)}</bdi></p>{scale}'
