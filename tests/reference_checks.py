"""What every pair of files of a reference posterior must hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from reference_files import apart


def assert_whole(numbers: dict[str, Any], info: dict[str, Any]) -> None:
    """A posterior's summary and its information are complete, and the one says of the other what is so."""
    names, second = numbers["names"], info["second_method"]
    assert list(numbers) == ["names", "mean", "mcse_mean", "sd", "mcse_sd"] and len(set(names)) == len(names) > 10
    for values in (*list(numbers.values())[1:], second["mean"], second["mcse_mean"], second["difference_in_mcse"]):
        assert len(values) == len(names) and np.isfinite(values).all()
    assert min(numbers["sd"]) > 0 and min(numbers["mcse_mean"]) >= 0
    found = info["diagnostics"]
    assert found["diagnostic_information"]["names"] == second["diagnostics"]["diagnostic_information"]["names"] == names
    made = info["checks_made"]
    assert made == {
        "ndraws_is_gte_10k": found["ndraws"] >= 10_000,
        "nchains_is_gte_4": found["nchains"] >= 4,
        "r_hat_below_1_01": max(found["r_hat"]) < 1.01,
        "lag_1_autocorrelation_within_0_05": max(map(abs, found["lag_1_autocorrelation"])) < 0.05,
        "methods_agree_within_4_mcse": max(map(abs, second["difference_in_mcse"])) < 4,
    }
    assert info["is_reference"] == all(made.values()) == ("NOT A REFERENCE" not in info["comments"])
    np.testing.assert_allclose(apart(numbers, second), second["difference_in_mcse"], rtol=0.02, atol=0.02)
