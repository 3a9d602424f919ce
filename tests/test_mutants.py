"""The mistakes that `make mutants` plants: each can still be planted, and names tests that are there."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "mutants"


def load_run():
    spec = importlib.util.spec_from_file_location("mutants_run", HERE / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


run = load_run()


@pytest.mark.parametrize("mutant", run.mutants(), ids=lambda mutant: mutant.name)
def test_a_mistake_can_be_planted(mutant):
    mutant.check()


def test_a_patch_that_no_longer_applies_is_said_to_need_renewal():
    assert run.changed("a\nb\n", "b\n", "c\n", "here") == "a\nc\n"
    for text in ("a\n", "b\nb\n"):
        with pytest.raises(AssertionError, match="renew the patch"):
            run.changed(text, "b\n", "c\n", "here")
