"""Looks for paths of a machine in the project's text: a folder of somebody's data or home says nothing to anybody else.

    python .ci/paths.py [folder]

Reads what git would commit or, where there is no git, every file outside environments, caches and builds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHES = {".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache", "__pycache__"}
LEFT_OUT = {".git", ".venv", "build", "dist", "local", *CACHES}
HOMES = "home|root|Users|work|workspace|mnt|media|tmp|private|srv|opt|scratch|data"
# an absolute path: nothing of a name or an address before its first slash
PATH = re.compile(rf"(?<![\w.~:/$)}}*-])/(?:{HOMES})/[\w.]|\b[A-Z]:\\{{1,2}}(?:Users|home|data)\b")


def committed(root: Path) -> list[Path]:
    """The project's own files."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(root)) for path in sorted(root.rglob("*"))]
    paths = [root / name for name in names if not LEFT_OUT & set(Path(name).parts) and ".egg-info" not in name]
    return [path for path in paths if path.is_file()]


def found_in(root: Path) -> list[str]:
    """`file:line: text` for every line that holds a path of a machine."""
    lines = []
    for path in committed(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        for number, line in enumerate(text.splitlines(), 1):
            if PATH.search(line):
                lines.append(f"{path.relative_to(root)}:{number}: {line.strip()[:160]}")
    return lines


if __name__ == "__main__":
    lines = found_in(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
    print("\n".join(lines) or "no path of a machine")
    sys.exit(bool(lines))
