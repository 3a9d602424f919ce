"""Arrays in a file that is written whole or not at all, with a checksum behind its end by which damage is noticed.

The file is NumPy's .npz; nothing in it is pickled, and nothing is read before the checksum is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SEAL = b"topiczoo sealed\n"  # then 32 bytes, the SHA-256 of all that comes before
SEAL_BYTES = len(SEAL) + 32
TOLD = "told"  # the array that holds the JSON
PART = ".part"  # the ending of a file that is being written


class Damaged(ValueError):
    """A file that is not what was written."""


def write_sealed(path: Path, arrays: Mapping[str, np.ndarray], told: Any = None) -> str:
    """Write arrays, and something that JSON can hold, and give the checksum of the file in letters."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{TOLD: text}, **{f"/{name}": array for name, array in arrays.items()})
    digest = hashlib.sha256(buffer.getbuffer())
    buffer.write(SEAL + digest.digest())
    write_lasting(path, buffer.getbuffer())
    return digest.hexdigest()


def read_sealed(path: Path, digest: str | None = None) -> tuple[dict[str, np.ndarray], Any]:
    """The arrays and what was told beside them; ``Damaged`` where the file is another than was written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from error
    end = len(data) - SEAL_BYTES
    found = hashlib.sha256(memoryview(data)[: max(end, 0)])
    if end < 0 or data[end:] != SEAL + found.digest() or digest not in (None, found.hexdigest()):
        raise Damaged(f"{path.name} is not as it was written")
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = {name[1:]: file[name] for name in file.files if name != TOLD}
        return arrays, json.loads(file[TOLD].tobytes())


def write_lasting(path: Path, data: memoryview | bytes) -> None:
    """Write a file beside its place, have the disk keep it, and then put it there: whatever happens, an old one stands."""
    hidden = path.with_name(f"{path.name}{PART}")
    try:
        with open(hidden, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
    except BaseException:
        with contextlib.suppress(OSError):
            hidden.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # not every system can
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def digest_of(arrays: Mapping[str, Any], told: Any = None) -> str:
    """Arrays by what is in them, in few letters."""
    total = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        array = np.ascontiguousarray(array)
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.data if array.size else b"")
    return total.hexdigest()
