"""The worked examples of CONTRIBUTING.md run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topiczoo import inference

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_examples_run(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    examples, names = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL), {}
    assert len(examples) >= 3
    for example in examples:
        exec(compile(example, "CONTRIBUTING.md", "exec"), names)
    assert not inference.registered_blocks()


def test_a_block_that_lacks_a_part_is_refused():
    class Half(inference.Block):
        def draw(self, key, values, data):
            return {}, {}

    with pytest.raises(TypeError, match="'Half' has no recognise of its own"):
        inference.register_block(Half)
    with pytest.raises(TypeError, match="give a subclass of"):
        inference.register_block(3)
    assert not inference.registered_blocks()
