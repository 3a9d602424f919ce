"""Matrices of an iteration are small: LAPACK works on them in one thread.

JAX calls the LAPACK that SciPy brings, OpenBLAS as a rule, which wakes a thread for each core, and these then wait in a loop
for more: a tenth to a fifth of what the cores can do, which sweeps need. Its sums are also rounded otherwise with another
number of threads, so that draws would depend on how many cores there are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from threadpoolctl import threadpool_limits

_lock, _runs, _limited = threading.Lock(), [0], ExitStack()


@contextmanager
def one_thread() -> Iterator[None]:
    """As long as a run lasts BLAS has one thread; after the last of several side by side as many as before the first."""
    with _lock:
        if not _runs[0]:
            _limited.enter_context(threadpool_limits(1, user_api="blas"))
        _runs[0] += 1
    try:
        yield
    finally:
        with _lock:
            _runs[0] -= 1
            if not _runs[0]:
                _limited.close()
