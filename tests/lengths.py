"""Which cases of a long test run each time, and which with the longest alone (make test-longest)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def longest_but(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """The cases, all but some marked as longest."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.longest) for case in cases]
