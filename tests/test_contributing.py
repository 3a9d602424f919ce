"""The worked examples of CONTRIBUTING.md run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from by_loops import CORPUS, SOME_Y

from topiczoo import inference
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.reading import read

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.longest
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


def test_a_registered_block_is_asked_first():
    """Before the built-in ones, and no longer once it is taken back."""

    class Mine(inference.Block):
        label = "mine"

        @classmethod
        def recognise(cls, graph, sites, few):
            return cls(graph, sites) if sites == ["sigma"] else None

        def draw(self, key, values, data):
            return {"sigma": values["sigma"]}, {}

        def log_conditional(self, new, values, data):
            return 0.0

    graph = read("slda", CORPUS, SOME_Y, {"num_topics": 2})
    assert inference.register_block(Mine) is Mine
    try:
        assert choose_blocks(graph).describe()["sigma"] == "mine"
    finally:
        inference.unregister_block(Mine)
    assert choose_blocks(graph).describe()["sigma"] == "generalised inverse Gaussian draw"
