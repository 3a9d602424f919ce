"""The reference: a page for each part of the package, with the public names of its `__all__` and nothing else."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

PARTS = {
    "corpora": "Documents",
    "models": "Stories, and the words to write one",
    "inference": "Engines, fits and checks",
    "diagnostics": "From a posterior to checks, figures and a report",
    "estimators": "scikit-learn's estimators",
    "distributed": "Several processes that make one run",
}

OTHERS = "BaseEstimator, TransformerMixin, ClassifierMixin, RegressorMixin, ClassNamePrefixFeaturesOutMixin"
THEIRS = (
    "get_metadata_routing, set_output, get_params, set_params, set_fit_request, set_partial_fit_request, "
    "set_predict_request, set_score_request"
)


def write_reference(into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for part, title in PARTS.items():
        module = importlib.import_module(f"topiczoo.{part}")
        lines = [f"topiczoo.{part}", "=" * 40, "", f"{title}.", "", f".. py:module:: topiczoo.{part}", ""]
        for name in sorted(module.__all__, key=str.lower):
            lines += entry(f"topiczoo.{part}.{name}", getattr(module, name))
        (into / f"{part}.rst").write_text("\n".join(lines), encoding="utf-8")
    listed = "\n".join(f"   {part}" for part in PARTS)
    (into / "index.rst").write_text(
        "Reference\n=========\n\nThe public names, from their docstrings. What is not here may change.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n{listed}\n",
        encoding="utf-8",
    )


def entry(path: str, thing: object) -> list[str]:
    name = path.rpartition(".")[2]
    if inspect.isclass(thing):
        lines = [name, "-" * len(name), "", f".. autoclass:: {path}", "   :members:"]
        if path.startswith("topiczoo.estimators."):  # most of their methods are those of the class they share
            lines += [f"   :inherited-members: {OTHERS}", f"   :exclude-members: {THEIRS}"]
        return [*lines, ""]
    if callable(thing):
        return [name, "-" * len(name), "", f".. autofunction:: {path}", ""]
    told = f"{', '.join(f'``{key}``' for key in thing)}." if isinstance(thing, dict) else ""
    return [name, "-" * len(name), "", f".. py:data:: {path}", "", f"   {told}", ""]
