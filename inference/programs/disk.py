"""Compiled programs on the disk: the second process that fits a story of some form on data of some shapes need not wait.

The folder is that of the user's caches, or the one that ``TOPICZOO_CACHE`` names; with ``TOPICZOO_CACHE=off`` there is none.
Who has told JAX itself of a folder (``JAX_COMPILATION_CACHE_DIR``) has that one. Where nothing can be written nothing is
kept, and what was not read for longest goes once there is too much.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from . import lowered

VARIABLE = "TOPICZOO_CACHE"
OFF = {"off", "0", "no", "none", "false"}
MOST_BYTES = 512 * 2**20
LEFT = 0.75  # of these, after there was too much


def keep_on_disk() -> Path | None:
    """Have JAX keep compiled programs in a folder, and say in which; None if nothing is kept, or the user has seen to it."""
    told: Any = jax.config
    if told.jax_compilation_cache_dir or not told.jax_enable_compilation_cache:
        return None
    base = folder()
    if base is None:
        return None
    own = base / _machine()
    try:
        own.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=own):
            pass
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(own))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a fit has dozens of small programs
    lowered.FOLDER = own / "lowered"
    compilation_cache.reset_cache()  # JAX looks for a folder once, and may have compiled something before
    atexit.register(prune, base)
    return own


def folder() -> Path | None:
    """Where programs are kept; None if nowhere."""
    asked = os.environ.get(VARIABLE, "").strip()
    if asked.lower() in OFF:
        return None
    with contextlib.suppress(RuntimeError):  # a user without a home
        if asked:
            return Path(asked).expanduser()
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "topiczoo"
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "topiczoo" / "Cache"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "topiczoo"
    return None


def _machine() -> str:
    """A folder for each kind of processor: a home may be shared, and machine code of another would not run."""
    abilities = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        abilities = next((line for line in lines if line.lower().startswith(("flags", "features"))), abilities)
    return f"jax-{jax.__version__}-{platform.machine()}-{hashlib.sha256(abilities.encode()).hexdigest()[:8]}"


def prune(base: Path, most: int = MOST_BYTES) -> None:
    """Delete what was not used for longest, if there is too much."""
    with contextlib.suppress(OSError):
        found = [(max(s.st_atime, s.st_mtime), s.st_size, path) for path in base.rglob("*-cache") if (s := path.stat())]
        left = sum(size for _, size, _ in found)
        if left <= most:
            return
        for _, size, path in sorted(found):
            if left <= LEFT * most:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            left -= size
