"""Parts of the report that tell what was fitted and how to do it again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import platform
import textwrap
from typing import Any

import numpy as np

from topiczoo.inference import Fit

from ..checks.response_checks import labelled
from ..drawing.plates import diagram
from .page import Section, code, drawing, facts, paragraph

PACKAGES = ("topiczoo", "jax", "numpyro", "numpy", "scipy", "arviz-base", "arviz-stats", "arviz-plots")


def section(fit: Fit) -> Section:
    """Sizes of the data, the story's source and its plate diagram."""
    corpus = fit.corpus
    sizes: dict[str, Any] = {
        "documents": f"{len(corpus):,}",
        "distinct terms": f"{corpus.num_terms:,}",
        "words": f"{corpus.num_tokens:,}",
        "median length": f"{np.median(corpus.lengths):g} words",
    }
    if fit.y is not None:
        sizes["with a response"] = f"{len(labelled(fit.y)):,}"
        one = fit.response.named("y")
        if one is not None and one.ndim == 1:
            sizes["response"] = f"mean {round(float(np.nanmean(one)), 3):g}, sd {np.nanstd(one):.3g}"
    if "standardised" in fit.info and list(fit.info["standardised"]) != [0.0, 1.0]:
        shift, scale = fit.info["standardised"]
        sizes["units"] = f"standardised: (y − {shift:.4g}) / {scale:.4g}; documents below are in the data's own"
    parts = [facts(sizes), paragraph(f"The story {fit.story.name}, fitted by {fit.engine}:"), code(source(fit))]
    parts.append(drawing(diagram(fit.graph), "The story as a plate diagram; shaded is observed."))
    return Section("data", "Data and story", "".join(parts))


def source(fit: Fit) -> str:
    """The story's own lines, where they are to be had."""
    try:
        return textwrap.dedent(inspect.getsource(fit.story.function))
    except (OSError, TypeError):
        return f"# the source of {fit.story.name} is not to be had: it was written where Python keeps none"


def reproduction(fit: Fit) -> Section:
    """The call, the seed, a mark of the data and the versions of what ran."""
    parts = [paragraph("The call, with every argument that the fit remembers:"), code(call(fit))]
    blocks = fit.info.get("blocks")
    if blocks:
        parts.append(facts({f"{site} by": block for site, block in blocks.items()}))
    counts = fit.corpus.counts
    digest = hashlib.sha256()
    for array in (counts.indptr, counts.indices, counts.data):
        digest.update(np.ascontiguousarray(array, np.int64).tobytes())
    digest.update("\n".join(map(str, fit.vocabulary)).encode())
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    parts.append(
        facts({"corpus (SHA-256 of counts and terms)": digest.hexdigest()[:16], "machine": platform.platform()})
    )
    parts.append(facts(versions))
    return Section("reproduce", "How to reproduce", "".join(parts))


def call(fit: Fit) -> str:
    """The engine's call as code."""
    from topiczoo import inference, models

    name = fit.story.name
    mine = getattr(models, name, None) is fit.story.function
    shape = next(iter({**fit.draws, **fit.snapshots}.values())).shape
    known = {"num_chains": shape[0], **fit.info}
    if fit.draws:  # snapshots are of some draws only
        known = {"num_samples": shape[1] * fit.info.get("thinning", 1), "num_draws": shape[1], **known}
    parameters = inspect.signature(getattr(inference, fit.engine)).parameters
    of_engine = {key: known[key] for key in parameters if key in known and key not in fit.story.arguments}
    of_story = {key: np.asarray(value).tolist() for key, value in fit.story.arguments.items()}
    data = f"{'models.' if mine else ''}{name}, corpus{', y' if fit.y is not None else ''}"
    lines = [", ".join([data, *_named(of_story)]), ", ".join(_named(of_engine))]
    where = "" if mine else f"from {getattr(fit.story.function, '__module__', 'your_module')} import {name}\n"
    imports = f"from topiczoo import inference{', models' if mine else ''}\n{where}\n"
    return f"{imports}fit = inference.{fit.engine}(\n" + "".join(f"    {line},\n" for line in lines if line) + ")"


def _named(settings: dict[str, Any]) -> list[str]:
    return [f"{key}={value!r}" for key, value in settings.items()]
