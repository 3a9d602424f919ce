"""Building the C++ kernels with the machine's own compiler, once, and finding them again.

Nothing needs them: without a compiler, or before :func:`build` was called, XLA's serve. The library lies in the user's
cache folder, in a file whose name follows from the source, the compiler's flags, the processor and the version of XLA's
interface, so that one that was built for something else is never loaded.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jaxlib

from ..programs.disk import folder
from ..programs.keeping import forget
from ..programs.written import BESIDE

SOURCES = tuple(Path(__file__).with_name(name) for name in ("sweep.cc", "dirichlet.cc"))
HEADERS = (Path(__file__).with_name("shared.h"),)
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-w")
COMPILERS = ("c++", "g++", "clang++")
SWEEP, COUNT, DIRICHLET = TARGETS = "topiczoo_sweep", "topiczoo_count", "topiczoo_dirichlet"
COMPILED = "C++"  # in words
VARIABLE = "TOPICZOO_NATIVE"  # "off" leaves the library where it is and unused
LIMIT = 300  # seconds that a compiler may take
_known: set[str] = set()  # targets that XLA has been told of


def build() -> Path:
    """Compile the C++ kernels for this machine, and use them from now on: in this process, and in later ones.

    They sweep topics, count them and draw Dirichlets. Needs a C++ compiler (``$CXX``, c++, g++ or clang++) and takes some
    seconds, the first time. The law of a chain is the same, its draws are not: Dirichlets come from other random numbers.
    Topics given all else are those of XLA's sweep: to the last bit where there is no response; where there is one, until
    rounding decides otherwise about a topic, one time in millions. Threads change nothing. What ran is in
    ``fit.info["sweep"]``. ``TOPICZOO_NATIVE=off`` goes back to XLA.
    """
    if registered() and (known := library()):
        return known
    compiler = next(
        (found for name in (os.environ.get("CXX"), *COMPILERS) if name and (found := shutil.which(name))), None
    )
    if compiler is None:
        raise RuntimeError(
            f"There is no C++ compiler: none of {', '.join(COMPILERS)} is on the path, nor is $CXX one; install g++."
        )
    path = library()
    if path is None:
        raise RuntimeError("There is no folder for the compiled sweep: TOPICZOO_CACHE is off; name a folder there.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", *map(str, SOURCES), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode:
            raise RuntimeError(f"{compiler} could not compile the sweep: {done.stderr.strip()[-500:]}")
        made.replace(path)
    _loaded.cache_clear()
    forget()  # programs with the other sweep in them
    if not registered():
        raise RuntimeError(f"{path} was compiled, but cannot be loaded; TOPICZOO_NATIVE may be off.")
    return path


@functools.cache
def _source() -> str:
    return "".join(path.read_text() for path in (*SOURCES, *HEADERS))


def library() -> Path | None:
    """Where the library of this machine, source and version belongs, whether it is there or not."""
    base = folder()
    if base is None:
        return None
    parts = _source(), *FLAGS, jaxlib.__version__, platform.machine(), _processor()
    return base / f"sweep-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.so"


def _processor() -> str:
    """What the processor can do, where the system tells: -march=native depends on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


def registered() -> bool:
    """Whether the library is there, wanted and known to XLA."""
    if os.environ.get(VARIABLE, "").lower() == "off" or jax.default_backend() != "cpu":
        return False
    path = library()
    return path is not None and _loaded(path)


@functools.cache
def _loaded(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        loaded = ctypes.cdll.LoadLibrary(str(path))
        functions = {target: getattr(loaded, target) for target in TARGETS}
    except (OSError, AttributeError):  # cut short, say: as if it were not there
        return False
    for target, function in functions.items():
        if target not in _known:  # one that is built anew serves the next process
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(function), platform="cpu")
            _known.add(target)
    return True


BESIDE.append(registered)
