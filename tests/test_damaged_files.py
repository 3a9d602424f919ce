"""Files damaged after they were written, or written to mislead: refused in a sentence, or read as they were."""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from test_store import GIB, fit, rewritten, same, with_state  # noqa: F401

from topiczoo import inference


def raw_corruptions(data, rng):
    """Name and bytes of files that were damaged after they were written."""
    size = len(data)
    for _ in range(80):
        changed = bytearray(data)
        changed[rng.integers(size)] ^= 1 << int(rng.integers(8))
        yield "a bit flipped", changed
    for start in range(0, size, size // 40):
        changed = bytearray(data)
        changed[start : start + 512] = bytes(len(changed[start : start + 512]))
        yield "a page zeroed", changed
    for end in (*rng.integers(size, size=20), *range(1, 60, 6)):
        yield "truncated", data[: end if end > 60 else -end]
    for _ in range(20):
        start, other = sorted(rng.integers(size - 256, size=2))
        yield "a block twice", data[:other] + data[start : start + 256] + data[other:]
        yield "blocks swapped", (
            data[:start] + data[other : other + 256] + data[start + 256 : other] + data[start : start + 256]
            + data[other + 256 :] if other - start > 256 else data[::-1]
        )  # fmt: skip
    for number in (1, 56, 512, 4096):
        yield "bytes appended", data + rng.bytes(number)
        yield "bytes appended", data + data[-number:]


def sealed_corruptions(data, rng):
    """Name and bytes of files whose checksum is right and whose content is not."""

    def at(place, value):
        def edit(file):
            array = file[place][()]
            array.flat[rng.integers(array.size)] = value
            file[place][()] = array

        return edit

    def swapped(file):
        file["posterior"].move("eta", "passing")
        file["posterior"].move("beta", "eta")
        file["posterior"].move("passing", "beta")

    def shorter(file):
        for place in ("posterior/beta", "posterior/eta"):
            array = file[place][:, :, :2]
            del file[place]
            file[place] = array

    def without(place):
        return lambda file: file.__delitem__(place)

    for _ in range(12):
        for value, kind in ((np.nan, "NaN"), (-0.1, "negative"), (np.inf, "infinite"), (2.0, "no shares")):
            yield f"topics {kind}", rewritten(data, at("posterior/beta", value))
    for place in ("posterior/eta", "posterior/sigma", "snapshots/theta", "means/theta"):
        yield "coefficients NaN", rewritten(data, at(place, np.nan))
    for place in (
        "posterior", "posterior/beta", "posterior/eta", "snapshots", "snapshots/draw", "sample_stats/diverging", "means",
        "observed_data", "observed_data/y", "constant_data/word_term", "constant_data", "topiczoo", "topiczoo/json",
    ):  # fmt: skip
        yield "a site missing", rewritten(data, without(place))
    yield "sites swapped", rewritten(data, swapped)
    yield "wrong K", rewritten(data, shorter)
    for topics in (2, 4, 10**9, -1, 0, 2.5, "3"):
        yield "wrong K", with_state(data, lambda state: state["arguments"].update(num_topics=topics))
    yield "duplicate terms", with_state(data, lambda state: state["vocabulary"].__setitem__(0, "v"))
    yield "wrong vocabulary", with_state(data, lambda state: state["vocabulary"].pop())
    yield "wrong vocabulary", with_state(data, lambda state: state["vocabulary"].append("more"))
    yield "wrong vocabulary", with_state(data, lambda state: state["vocabulary"].__setitem__(0, 7))
    yield "wrong documents", with_state(data, lambda state: state["document_names"].pop())
    for place, value in (("word_term", 6), ("word_term", -1), ("word_document", 99), ("word_count", -5)):
        yield "wrong counts", rewritten(data, at(f"constant_data/{place}", value))
    yield "wrong draws of snapshots", rewritten(data, at("snapshots/draw", 9))
    for key in (
        "story",
        "arguments",
        "graph",
        "info",
        "arrays",
        "classes",
        "vocabulary",
        "engine",
        "several_responses",
    ):
        yield "JSON damaged", with_state(data, lambda state: state.pop(key) and None)
        yield "JSON damaged", with_state(data, lambda state: state.update({key: {"a": [1]} if key != "info" else 1}))
    for text in ([], None, "text", {"story": 1}):
        yield "JSON damaged", with_state(data, lambda state: text if text is not None else 7)
    for place, axes in ((0, ["topic"]), (1, 3), (3, ["document", "topic", None])):
        yield "wrong axes", with_state(data, lambda state: state["graph"]["sites"][place].update(axes=axes))
    for key in ("sites", "parents", "theta"):
        yield "JSON damaged", with_state(data, lambda state: state["graph"].pop(key) and None)


def test_300_corruptions_are_refused_or_harmless(fit, tmp_path):  # noqa: F811
    path, rng = fit.save(tmp_path / "fit.nc"), np.random.default_rng(4)
    data = path.read_bytes()
    outcomes: Counter = Counter()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GIB, limits[1]))
    try:
        for kind, damaged in (*raw_corruptions(data, rng), *sealed_corruptions(data, rng)):
            path.write_bytes(damaged)
            began = time.perf_counter()
            try:
                loaded = inference.load(path)
            except (ValueError, TypeError) as error:
                sentence = str(error)
                assert sentence.endswith(".") and "\n" not in sentence and len(sentence) < 400, (kind, sentence)
                outcomes[kind, "refused"] += 1
            else:
                assert same(loaded, fit), kind
                outcomes[kind, "loaded equal"] += 1
            assert time.perf_counter() - began < 5, kind
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    print(pd.Series(outcomes).unstack(fill_value=0).to_string())
    assert sum(number for (_, outcome), number in outcomes.items() if outcome == "refused") >= 300
