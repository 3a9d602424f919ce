"""Uses the installed package as somebody does who has nothing but the wheel: all names, a fit, its report, the command.

    python -P .ci/installed.py CHECKOUT

CHECKOUT is where the package must not come from.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import topiczoo
from topiczoo import corpora, diagnostics, inference, models

checkout = Path(sys.argv[1]).resolve()
installed = Path(sys.prefix).resolve()
for module in (topiczoo, corpora, diagnostics, inference, models):
    file = Path(module.__file__ or "").resolve()
    assert file.is_relative_to(installed), f"{module.__name__} comes from {file}"
    for name in module.__all__:
        getattr(module, name)

corpus, y = corpora.load_reviews(num_documents=60)
fit = inference.vem(models.slda, corpus, (y - y.mean()) / y.std(), num_topics=3, num_iterations=5, progress_bar=False)
with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "report.html"
    diagnostics.report(fit, page)
    text = page.read_text()
    for asset in (
        *(checkout / "diagnostics" / "reporting" / "assets").glob("*.css"),
        *(checkout / "diagnostics" / "reporting" / "assets").glob("*.js"),
    ):
        line = max(asset.read_text().splitlines(), key=len).strip()
        assert line in text, f"the report lacks what {asset.name} holds"
command = shutil.which("topiczoo", path=str(Path(sys.prefix) / "bin"))
assert command, "the command topiczoo is not installed"
listed = subprocess.run([command, "models"], check=True, capture_output=True, text=True).stdout
assert "slda" in listed
print(f"topiczoo {topiczoo.__version__} works from its wheel")
