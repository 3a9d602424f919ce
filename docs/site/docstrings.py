"""Docstrings as the reference shows them: names of public things become links, names of inner ones are only told.

A method of Fit that says where its work is done is followed by what is said there.
"""

from __future__ import annotations

import importlib
import inspect
import re

from reference import PARTS
from sphinx.application import Sphinx

ROLE = re.compile(r":(?:func|meth|mod|attr|class):`~?([^`]+)`")
BARS = re.compile(r"(?<![\w`|])\|(?=\S)([^|\n]*\S)\|(?![\w`|])")
ITEM = re.compile(r"^([A-Za-z_][\w, ]*) : (.+)$")
BESIDE = {  # methods of Fit, and the functions that do their work
    "predict": "predictive.predicting.predict",
    "transform": "predictive.predicting.transform",
    "select": "predictive.selection.select",
}


def public() -> dict[str, str]:
    """Every public name with its path."""
    return {
        name: f"topiczoo.{part}.{name}"
        for part in PARTS
        for name in importlib.import_module(f"topiczoo.{part}").__all__
    }


def mend(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """What Sphinx is given in the place of a docstring."""
    known = public()
    owner, _, method = name.rpartition(".")
    if owner == "topiczoo.inference.Fit" and method in BESIDE:
        module, _, function = BESIDE[method].rpartition(".")
        told = getattr(importlib.import_module(f"topiczoo.inference.{module}"), function)
        lines[:] = [re.sub(r" See :func:`[^`]+`\.?", "", line) for line in lines]
        lines += ["", *inspect.cleandoc(told.__doc__ or "").splitlines()]

    def linked(found: re.Match[str]) -> str:
        last = found[1].rpartition(".")[2]
        if last in known:
            return f":py:obj:`{last} <{known[last]}>`"
        if found[1].startswith("Fit."):
            return f":py:meth:`{found[1]} <topiczoo.inference.{found[1]}>`"
        return f"``{found[1].lstrip('.')}``"

    said = [BARS.sub(r"\|\1\|", ROLE.sub(linked, line)) for line in lines]
    # "name : what it is" says no type
    lines[:] = [part for line in said for part in (ITEM.sub(r"\1\n    \2", line).split("\n"))]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", mend, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
