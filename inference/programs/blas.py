"""Matrices of an iteration are small: LAPACK works on them in one thread.

JAX calls the LAPACK that SciPy brings, OpenBLAS as a rule, which wakes a thread for each core, and these then wait in a loop
for more: a tenth to a fifth of what the cores can do, which sweeps need. Its sums are also rounded otherwise with another
number of threads, so that draws would depend on how many cores there are.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import scipy

_lock = threading.Lock()
_runs = {"number": 0, "threads before": 0}


@functools.cache
def _openblas() -> ctypes.CDLL | None:
    """SciPy's own OpenBLAS, where it brings one."""
    near = Path(scipy.__file__).parent
    for path in [*near.with_name("scipy.libs").glob("*openblas*"), *(near / ".dylibs").glob("*openblas*")]:
        try:
            found = ctypes.CDLL(str(path))
            found.scipy_openblas_get_num_threads, found.scipy_openblas_set_num_threads  # noqa: B018
        except (OSError, AttributeError):
            continue
        return found
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """As long as a run lasts LAPACK has one thread; after the last of several side by side as many as before the first."""
    library = _openblas()
    if library is None:
        yield
        return
    with _lock:
        if not _runs["number"]:
            _runs["threads before"] = library.scipy_openblas_get_num_threads()
            library.scipy_openblas_set_num_threads(1)
        _runs["number"] += 1
    try:
        yield
    finally:
        with _lock:
            _runs["number"] -= 1
            if not _runs["number"]:
                library.scipy_openblas_set_num_threads(_runs["threads before"])
