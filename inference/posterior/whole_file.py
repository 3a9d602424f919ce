"""A file written whole or not at all: whatever goes wrong, the old one stands."""

from __future__ import annotations

import glob
import os
import secrets
import stat
from pathlib import Path
from typing import Any

OTHER_FORMATS = frozenset(
    ".bz2 .csv .doc .docx .feather .gz .htm .html .ipynb .jpeg .jpg .joblib .json .jsonl .md .mat .npy .npz .parquet .pdf "
    ".pickle .pkl .png .py .r .rda .rds .svg .tar .tex .toml .tsv .txt .xls .xlsx .xml .xz .yaml .yml .zip".split()
)


def checked_path(path: Any) -> Path:
    """Where a fit can be written, as a Path; said before anything is computed."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"path is {path!r}; give the name of a file, such as 'fit.nc'.")
    path = Path(path)
    if "\0" in str(path):
        raise ValueError(f"path is {str(path)!r}, and no file has a NUL in its name; leave it out.")
    if os.path.isdir(path):
        raise IsADirectoryError(f"path {str(path)!r} is a folder; give a file in it, such as {str(path / 'fit.nc')!r}.")
    if path.suffix.lower() in OTHER_FORMATS:
        raise ValueError(
            f"path is {str(path)!r}, and a fit is a netCDF file, not {path.suffix}; give {str(path.with_suffix('.nc'))!r}."
        )
    if not os.path.isdir(path.parent):
        raise FileNotFoundError(f"path {str(path)!r} is in no existing folder; make {str(path.parent)!r} first.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"path {str(path)!r} is a device or a socket; give the name of a file.")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise PermissionError(f"path {str(path)!r} may not be written to; change its permissions or give another path.")
    return path


def write_whole(path: Path, data: memoryview) -> None:
    """Write the bytes beside the file under a hidden name, then put them in its place.

    A link stays a link, and a file keeps its permissions. What a killed process left under a hidden name is removed.
    """
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path
    try:
        for left in glob.glob(f".{glob.escape(target.name)}.*.part", root_dir=target.parent):
            (target.parent / left).unlink(missing_ok=True)
        while not _written(target, data):
            pass
    except OSError as error:
        raise OSError(
            f"path {str(path)!r} could not be written ({error.strerror or error}); free {len(data) / 1e6:.1f} MB there or "
            "give another path: the fit is untouched."
        ) from error


def _written(target: Path, data: memoryview) -> bool:
    """Whether it came to its end: another process that saves to the same path may take this one's for a left one."""
    hidden = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
    handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with open(handle, "wb", buffering=0) as file:
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
            left = data
            while left:
                left = left[file.write(left) :]
            os.fsync(handle)
        try:
            os.replace(hidden, target)
        except FileNotFoundError:
            return False
        return True
    finally:
        hidden.unlink(missing_ok=True)
