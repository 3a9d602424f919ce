"""The bytes of a saved fit: a netCDF file with a checksum behind its end.

The file is made in memory, so that HDF5 never meets a full disk, and on the way back nothing is handed to HDF5 before the
checksum is right. Any program that reads netCDF reads it: HDF5 does not look behind the end that it has written down.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any

import h5netcdf
import h5py
import numpy as np

from .tables import are_shares

if TYPE_CHECKING:
    import xarray as xr

HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes of every HDF5 file
LAYOUT = "v108"  # of HDF5; its byte 8 tells these files from those of version 2, which had no checksum
SEAL = b"topiczoo sha256\n"  # then 8 bytes, the length of what comes before, and 32 bytes, its SHA-256
SEAL_BYTES = len(SEAL) + 8 + 32
STATE = "topiczoo"  # the group of what ArviZ has no place for, as JSON
CHUNK = 2**20  # bytes that are compressed together
SMALL = 2**16  # bytes: an array up to this size is not compressed
MANY = 2**20  # numbers: draws of shares of more than that are rounded
DIGITS = 17, 4  # binary digits of a share of 1, and of the smallest share
PATIENCE = 30  # seconds, within which a file without a checksum must have been looked through
LOOK_THROUGH = """
import sys, h5py
def look(name, item):
    dict(item.attrs)
    if isinstance(item, h5py.Dataset):
        item.id.get_storage_size()
with h5py.File(sys.argv[1]) as file:
    file.visititems(look)
"""
EXPANSION = 1100  # deflate makes at most 1032 bytes of one


def netcdf_name(name: str) -> str:
    """A site's name as netCDF allows it: without slashes, NUL and halves of characters."""
    return re.sub("[/\0]", ".", readable(name))


def readable(text: str) -> str:
    """The text with what cannot be written as UTF-8 spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def packed(tree: xr.DataTree, state: str) -> memoryview:
    """The whole file: the tree's groups as netCDF, the state's JSON, and the checksum."""
    buffer, large = io.BytesIO(), []
    text = np.frombuffer(state.encode(), np.uint8)
    with h5netcdf.File(buffer, "w", libver=LAYOUT) as file:
        file.attrs.update(tree.attrs)
        for group, node in tree.children.items():
            target = file.create_group(group)
            target.dimensions = {str(dim): size for dim, size in node.sizes.items()}
            for name, variable in node.variables.items():
                left = _create(target, str(name), tuple(map(str, variable.dims)), variable.values)
                large += [] if left is None else [(group, name, left)]
        target = file.create_group(STATE)
        target.dimensions = {"byte": len(text)}
        left = _create(target, "json", ("byte",), text)
        large += [] if left is None else [(STATE, "json", left)]
    with h5py.File(buffer, "r+", libver=LAYOUT) as file:
        for group, name, array in large:
            _fill(file[group][name], array, rounds=group in ("posterior", "snapshots"))
    buffer.seek(0, io.SEEK_END)
    length = buffer.tell()
    digest = hashlib.sha256(buffer.getbuffer()).digest()
    buffer.write(SEAL + length.to_bytes(8, "little") + digest)
    return buffer.getbuffer()


def _create(target: Any, name: str, dims: tuple[str, ...], array: np.ndarray) -> np.ndarray | None:
    """Make a variable of the file. A large array is not written yet and is given back."""
    if array.dtype.kind in "OUT":
        texts = np.array([readable(str(text)).replace("\0", "\\0") for text in array.ravel()], object)
        target.create_variable(name, dims, h5py.string_dtype(), data=texts.reshape(array.shape))
        return None
    flags = array.dtype == bool
    array = array.astype(np.int8) if flags else array
    small, options = array.nbytes <= SMALL, {}
    if not small:
        options = {"chunks": _chunk(array), "compression": "gzip", "compression_opts": 1, "shuffle": True}
    made = target.create_variable(name, dims, array.dtype, data=array if small else None, **options)
    if flags:
        made.attrs["dtype"] = "bool"  # as xarray writes and reads it
    return None if small else array


def _chunk(array: np.ndarray) -> tuple[int, ...]:
    """The shape of what is compressed together: whole rows of the last axes, about CHUNK bytes."""
    shape, row = list(array.shape), array.nbytes
    for axis, size in enumerate(array.shape):
        row //= size
        shape[axis] = max(1, min(size, CHUNK // row))
        if row <= CHUNK:
            break
    return tuple(shape)


def _fill(dataset: Any, array: np.ndarray, rounds: bool) -> None:
    """Write an array chunk by chunk: rounded where it may be, bytes of like weight together, compressed."""
    rounds = rounds and array.dtype.kind == "f" and array.size > MANY and are_shares(array)
    if rounds:
        dataset.attrs["rounded"] = "the square root of each share to within 3e-6, each share to within 4% of itself"
    shape = dataset.chunks
    for start in itertools.product(*(range(0, size, step) for size, step in zip(array.shape, shape, strict=True))):
        part = array[tuple(slice(at, at + step) for at, step in zip(start, shape, strict=True))]
        part = rounded(part) if rounds else part
        whole = part
        if part.shape != shape:
            whole = np.zeros(shape, array.dtype)
            whole[tuple(map(slice, part.shape))] = part
        planes = np.ascontiguousarray(np.ascontiguousarray(whole).view(np.uint8).reshape(-1, array.itemsize).T)
        # runs and frequent bytes are all there is to find in draws: twice as fast as looking for repeats, and smaller
        deflate = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 8, zlib.Z_RLE)
        dataset.id.write_direct_chunk(start, deflate.compress(planes.data) + deflate.flush())


def rounded(shares: np.ndarray) -> np.ndarray:
    """Shares with the binary digits that a posterior can tell.

    The square root of a share that N words tell of has the posterior standard deviation 1/(2 sqrt(N)), whatever the share.
    It is kept to within 3e-6, a hundredth of that for a million words; and every share to within 4% of itself, so that the
    smallest, whose draws differ by factors, have a logarithm.
    """
    kind, words = np.finfo(shares.dtype), np.dtype(f"u{shares.itemsize}")
    exponent = np.arange(2 ** (kind.nexp + 1)) - (kind.maxexp - 1)
    most, least = DIGITS
    dropped = np.clip(kind.nmant - most - exponent // 2, 0, kind.nmant - least).astype(words)
    dropped[0] = 0  # numbers too small to have an exponent
    bits = np.ascontiguousarray(shares).view(words)
    drop = dropped[bits >> words.type(kind.nmant)]
    half = (words.type(1) << drop) >> words.type(1)
    return (((bits + half) >> drop) << drop).view(shares.dtype)


def check_seal(data: bytes, path: str) -> bool:
    """Whether the file has a checksum: files of version 2 have none. A checksum that is wrong, or was lost, is refused."""
    if not data.startswith(HDF5):
        raise ValueError(
            f"{path!r} cannot be read as netCDF: it is truncated or of another kind; give a file written by Fit.save."
        )
    end = len(data) - SEAL_BYTES
    if data[end : end + len(SEAL)] == SEAL and end > 0:
        length, digest = int.from_bytes(data[end + len(SEAL) : -32], "little"), data[-32:]
        if length != end or hashlib.sha256(memoryview(data)[:end]).digest() != digest:
            raise ValueError(f"{path!r} is damaged: its checksum is not that of its content; save the fit again.")
        return True
    if data[len(HDF5)] > 0:
        raise ValueError(
            f"{path!r} has no checksum at its end: it is truncated, was changed by another program, or is not a topiczoo "
            "fit; save the fit again."
        )
    return False


def look_through(path: str) -> None:
    """Let another process see whether HDF5 comes to an end with a file that has no checksum: a damaged page may hang it."""
    try:
        command = [sys.executable, "-P", "-c", LOOK_THROUGH, path]
        failed = subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode
    except subprocess.TimeoutExpired:
        failed = 1
    if failed:
        raise ValueError(f"{path!r} cannot be read as netCDF: it is truncated or of another kind; save the fit again.")


def attributes_of(file: h5py.File) -> dict[str, Any]:
    """The attributes; an array of one number is that number."""
    return {name: np.asarray(value).item() if np.size(value) == 1 else value for name, value in file.attrs.items()}


def read_state(file: h5py.File) -> dict[str, Any]:
    """What was saved as JSON beside the arrays."""
    return json.loads(read_array(file, STATE, "json").tobytes())


def stored_names(file: h5py.File, group: str) -> list[str]:
    """The variables of a group that are no labels of an axis."""
    if group not in file:
        return []
    return [name for name in file[group] if file[group][name].attrs.get("CLASS") != b"DIMENSION_SCALE"]


def read_array(file: h5py.File, group: str, name: str) -> np.ndarray:
    """One array, if the file can really hold it and holds it itself."""
    links = file.get(group, getlink=True), file[group].get(name, getlink=True)
    dataset = file[group][name]
    if not all(isinstance(link, h5py.HardLink) for link in links) or dataset.external or dataset.is_virtual:
        raise ValueError(f"{name!r} is a link to another place")
    if dataset.dtype.kind not in "fiu" and not h5py.check_string_dtype(dataset.dtype):
        raise ValueError(f"{name!r} holds no numbers")
    stored, chunk = dataset.id.get_storage_size(), dataset.chunks or ()
    if max(dataset.size, int(np.prod(chunk, dtype=float))) * dataset.dtype.itemsize > EXPANSION * stored + SMALL:
        raise ValueError(f"{name!r} has the shape {dataset.shape} and only {stored} bytes")
    if dataset.dtype.kind == "O":
        return np.asarray(dataset.asstr()[()], str)
    return dataset[()].astype(bool) if dataset.attrs.get("dtype") == "bool" else dataset[()]
