"""What a run is of: engine, settings, story, documents and versions. A run goes on only where all of these are the same.

Beside a file for people, ``run.json``, a folder holds the documents and their responses, so that a run can be taken up
without them. A story of the zoo is found by its name; nothing is imported or run because a file names it.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus

from ..native.build import registered
from ..posterior.stored_corpus import WORDS, plain_frame, plain_sentences, read_corpus
from ..posterior.stored_story import alike, find_argument, plain, source
from ..story.bound import BoundGraph
from ..story.response import Response
from ..story.tracing import circumstances
from .sealed import Damaged, digest_of, read_sealed, write_lasting, write_sealed

FORMAT = 1  # of the folder
RUN, DOCUMENTS = "run.json", "documents.npz"
Manifest = dict[str, Any]


class Described:
    """A call of an engine as it is written down: what ``run.json`` says, and the arrays of the documents."""

    def __init__(self, engine: str, settings: Mapping[str, Any], graph: BoundGraph) -> None:
        story, corpus = graph.story, graph.corpus
        response = (
            graph.response if graph.known is None else Response({"y": graph.known}, classes=graph.response.classes)
        )
        pairs = corpus.counts.tocoo()
        self.words = dict(zip(WORDS, (pairs.row, pairs.col, pairs.data), strict=True))
        self.told = {
            "vocabulary": np.asarray(corpus.vocabulary).tolist(),
            "document_names": np.asarray(corpus.names).tolist(),
            "covariates": plain_frame(corpus.covariates),
            "texts": None if corpus.texts is None else list(corpus.texts),
            "sentences": plain_sentences(corpus),
        }
        self.parts = {name: np.asarray(part) for name, part in response.parts.items()}
        self.of_response = {
            "several": response.several,
            "classes": None if response.classes is None else response.classes.tolist(),
        }
        self.arrays = {n: np.asarray(v) for n, v in story.arguments.items() if _is_array(v)}
        others = {name: value for name, value in story.arguments.items() if name not in self.arrays}
        now = circumstances()
        self.manifest: Manifest = {
            "format": FORMAT,
            "versions": now["versions"],
            "platform": now["platform"],
            "sweep": "C++" if registered() else "XLA's",
            "threads": os.environ.get("PJRT_NPROC", ""),
            "engine": engine,
            "story": story.name,
            "story_module": getattr(story.function, "__module__", ""),
            "story_source": source(story.function),
            "arguments": {name: plain(value) for name, value in others.items()},
            "arrays": {name: digest_of({"": array}) for name, array in self.arrays.items()},
            "functions": {name: source(value) for name, value in others.items() if callable(value)},
            "settings": {name: plain(value) for name, value in settings.items()},
            "corpus": digest_of(self.words, self.told),
            "response": digest_of(self.parts, self.of_response),
            "more": 0,
        }

    def write(self, folder: Path) -> None:
        groups = {"words": self.words, "y": self.parts, "argument": self.arrays}
        arrays = {f"{group}/{name}": array for group, part in groups.items() for name, array in part.items()}
        write_sealed(folder / DOCUMENTS, arrays, {"corpus": self.told, "response": self.of_response})
        write_manifest(folder, self.manifest)  # last: a folder that has it has all


def _is_array(value: Any) -> bool:
    return not callable(value) and hasattr(value, "dtype") and np.ndim(value) > 0 and np.asarray(value).dtype != object


def write_manifest(folder: Path, manifest: Manifest) -> None:
    text = json.dumps(manifest, indent=1, sort_keys=True)
    seal = hashlib.sha256(text.encode()).hexdigest()
    write_lasting(folder / RUN, f"{text}\n{seal}\n".encode())


def read_manifest(folder: Path) -> Manifest:
    """What a folder's run is of; refused where that cannot be read, or was written in a way that is not known here."""
    path = folder / RUN
    if not path.is_file():
        raise FileNotFoundError(f"folder {str(folder)!r} holds no checkpoint; give one that an engine has written to.")
    text, _, seal = path.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")
    if hashlib.sha256(text.encode()).hexdigest() != seal:
        raise ValueError(f"{str(path)!r} is damaged: its checksum is not that of its content; start anew elsewhere.")
    manifest = json.loads(text)
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"folder {str(folder)!r} is of another version of topiczoo (format {manifest.get('format')} of checkpoints, "
            f"here {FORMAT}); go on with that one, or start anew in another folder."
        )
    return manifest


def read_call(folder: Path, manifest: Manifest, given: Mapping[str, Any]) -> tuple[Corpus, Response | None, dict]:
    """The documents of a folder, their responses, and the story's arguments, of which functions may have to be given."""
    try:
        arrays, told = read_sealed(folder / DOCUMENTS)
    except Damaged as error:
        raise ValueError(f"folder {str(folder)!r} is damaged: {error}; start anew in another folder.") from error
    groups: dict[str, dict[str, np.ndarray]] = {"words": {}, "y": {}, "argument": {}}
    for name, array in arrays.items():
        group, _, own = name.partition("/")
        groups[group][own] = array
    corpus = read_corpus(told["corpus"], [groups["words"][name] for name in WORDS])
    classes = told["response"]["classes"]
    response = Response(groups["y"], told["response"]["several"], None if classes is None else np.array(classes))
    shown = str(folder)
    arguments = {
        name: find_argument(name, value, shown) if isinstance(value, dict) else value
        for name, value in manifest["arguments"].items()
        if name not in given
    }
    return corpus, response if response else None, {**arguments, **groups["argument"], **given}


def refuse_another(folder: Path, then: Manifest, now: Manifest) -> None:
    """Say what a call is of and the folder's run is not."""
    found = _another(then, now)
    if found:
        raise ValueError(f"checkpoint {str(folder)!r} is of another run: {found}; or start anew in another folder.")
    if then["threads"] != now["threads"]:
        warnings.warn(
            f"The run of {str(folder)!r} was begun with {then['threads']} threads of XLA, and here are {now['threads']}: "
            f"sums may be rounded otherwise; set PJRT_NPROC={then['threads']} to end with the same to the last bit.",
            stacklevel=6,
        )


def _another(then: Manifest, now: Manifest) -> str:
    for package, version in now["versions"].items():
        if then["versions"].get(package) != version:
            old = then["versions"].get(package)
            return f"it was written with {package} {old}, and this is {version}; go on with that one"
    name = then["story"]
    for what, called in (
        ("platform", "machine"),
        ("sweep", "topic sweep"),
        ("engine", "engine"),
        ("story", "story"),
    ):
        if then[what] != now[what]:
            return f"its {called} is {then[what]!r}, and this one is {now[what]!r}; give that one"
    if not alike(then["story_source"], now["story_source"]):
        return f"the story {name!r} has changed since then; give the old one, which its run.json shows"
    for what, called in (("arguments", f"the story {name!r}"), ("settings", str(then["engine"]))):
        for argument in sorted({*then[what], *now[what]}):
            old, new = then[what].get(argument), now[what].get(argument)
            if old != new:
                return f"{argument} of {called} is {old!r} there and {new!r} here; give {argument}={old!r}"
    for argument in sorted({*then["arrays"], *now["arrays"]}):
        if then["arrays"].get(argument) != now["arrays"].get(argument):
            return f"{argument} of the story {name!r} holds other numbers; give those of then"
    for argument, text in then["functions"].items():
        if not alike(text, now["functions"].get(argument, "")):
            return f"the function given as {argument} has changed since then; give the old one"
    for what in ("corpus", "response"):
        if then[what] != now[what]:
            return f"its {what} is another; give the one it was begun with"
    return ""
