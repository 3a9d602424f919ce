"""Which cases of a long test run each time, which with the slow ones, and which with the longest alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def longest_but(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """The cases, all but some marked as longest."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.longest) for case in cases]


def slow_but(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """The cases, all but some marked as slow."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]
