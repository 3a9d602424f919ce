"""Runs taken up again from their checkpoints, and runs that have ended drawn on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .api import gibbs, nuts, online, svi, vem
from .fit import Fit
from .lasting.checkpoint import STREAM, lengthen
from .lasting.manifest import read_call, read_manifest
from .posterior.posterior import Posterior
from .posterior.stored_story import find_story
from .story.validation import check_counts

ENGINES: dict[str, Callable[..., Fit]] = {"gibbs": gibbs, "nuts": nuts, "online": online, "svi": svi, "vem": vem}
DRAWING = ("gibbs", "nuts")  # engines whose draws go on without end


def resume(
    folder: str | Path, story: str | Callable | None = None, *, progress_bar: bool = True, **arguments: Any
) -> Fit:
    """Go on with a run that was cut short, from its last checkpoint; the end is what it would have been, to the last bit.

    Parameters
    ----------
    folder
        What was given to the engine as ``checkpoint``. It holds the documents and all settings.
    story, arguments
        A story of the zoo is found again by its name. Any other must be given, and so must functions of yours among its
        arguments: ``resume(folder, story=my_story, response=my_response)``. Nothing is imported or run because a file
        names it.

    Notes
    -----
    A checkpoint of another version of topiczoo, JAX or NumPyro, of a story that has changed, or of another kind of machine
    is refused: the end would be another. Where the last checkpoint is damaged the one before serves, with a warning.
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder is {folder!r}; give the folder that an engine had as checkpoint.")
    folder = Path(folder)
    manifest = read_manifest(folder)
    if STREAM in manifest["settings"]:
        raise ValueError(
            f"folder {str(folder)!r} is of a run on a {manifest['settings'][STREAM]}, whose documents it does not hold; "
            f"give {manifest['engine']} the same stream again, with checkpoint={str(folder)!r}."
        )
    try:
        function = find_story(manifest, str(folder)) if story is None else story
        corpus, y, given = read_call(folder, manifest, arguments)
    except ValueError as error:
        raise ValueError(str(error).replace("load(path, ", "resume(folder, ")) from error
    engine = ENGINES[manifest["engine"]]
    return engine(function, corpus, y, **manifest["settings"], **given, checkpoint=folder, progress_bar=progress_bar)


def more(fit: Posterior, *, num_samples: int, progress_bar: bool = True) -> Fit:
    """Draw on from a fit that has ended: its chains go on where they stopped. The fit with so many draws more a chain.

    The fit must have been made with ``checkpoint=folder``, and the folder must still be there: it has the state of the
    chains, which a fit has not. For ``gibbs`` and ``nuts``.
    """
    if fit.engine not in DRAWING:
        raise ValueError(f"fit is by {fit.engine}, which has no chains to go on with; fit again by {fit.engine}.")
    folder = fit.info.get("checkpoint")
    if folder is None or not Path(folder).is_dir():
        where = "was made without one" if folder is None else f"had one in {folder!r}, which is gone"
        raise ValueError(f"fit needs a checkpoint for its chains to go on, and {where}; fit with checkpoint=folder.")
    thinning = read_manifest(Path(folder))["settings"]["thinning"]
    check_counts(num_samples=num_samples, thinning=thinning)
    lengthen(Path(folder), int(num_samples))
    functions = {name: value for name, value in fit.story.arguments.items() if callable(value)}
    return resume(folder, fit.story.function, progress_bar=progress_bar, **functions)
