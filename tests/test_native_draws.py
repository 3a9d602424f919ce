"""Dirichlet draws, counts and whole chains in C++.

Limits: distribution functions at 2.9 / sqrt(n), which Kolmogorov's statistic exceeds in 1e-7 of right samplers, 12 of them;
means of rows at 6 standard errors, some 100; topics of 110 copies at 5.5, some 90: right code fails in 5e-6 runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import known_parameters as known
import numpy as np
import pytest
from scipy import stats

from topiczoo import inference
from topiczoo.corpora import layouts
from topiczoo.inference.kernels.assignments import Assignments, count
from topiczoo.inference.kernels.sweep import Given, Weights, sweep_shards
from topiczoo.inference.native import build
from topiczoo.inference.native.dirichlet import dirichlet
from topiczoo.inference.native.sweep import count_terms
from topiczoo.inference.samplers import gamma

pytestmark = pytest.mark.skipif(not any(map(shutil.which, build.COMPILERS)), reason="there is no C++ compiler")
NUMBER = 20_000


@pytest.fixture(scope="module", autouse=True)
def native(folder_of_the_library):
    """The library in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOPICZOO_CACHE", folder_of_the_library)
        patch.delenv(build.VARIABLE, raising=False)
        yield inference.compile_sweep()


@pytest.mark.parametrize("shapes", [(0.05, 0.05), (0.05, 1.05), (0.4, 0.9), (1.0, 3.0), (1.3, 40.0), (2000.0, 0.7)])
def test_shares_of_two_have_their_beta_law(shapes):
    found = np.asarray(dirichlet(jax.random.key(1), jnp.tile(jnp.asarray(shapes, jnp.float32), (NUMBER, 1))), float)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    for own, (a, b) in zip(found.T, (shapes, shapes[::-1]), strict=True):
        law = stats.beta(a, b)
        # a share near 1 is rounded, and one of 1e-35 may be 0: the distribution function is looked at in between
        at = np.unique(
            np.clip(np.r_[np.geomspace(1e-30, 0.5, 200), law.ppf(np.linspace(0.005, 0.995, 200))], 1e-30, 0.99)
        )
        at = at.astype(np.float32).astype(float)
        gap = np.abs(np.searchsorted(np.sort(own), at, side="right") / NUMBER - law.cdf(at))
        assert gap.max() < 2.9 / np.sqrt(NUMBER), (a, b, gap.max())


def test_long_rows_have_means_and_covariances_of_their_own():
    """Small and large shapes mixed, more than a vector of each, and a rest."""
    rng = np.random.default_rng(3)
    shape = rng.permutation(np.r_[rng.uniform(0.02, 0.98, 19), rng.uniform(1, 9, 14)]).astype(np.float32)
    found = np.asarray(dirichlet(jax.random.key(2), jnp.tile(shape, (NUMBER, 1))), float)
    mean = shape / shape.sum()
    error = np.sqrt(mean * (1 - mean) / (shape.sum() + 1) / NUMBER)
    assert (np.abs(found.mean(0) - mean) / error).max() < 6
    weights = rng.normal(size=(3, len(shape)))  # what covariances say of some sums
    variance = (weights**2 @ mean - (weights @ mean) ** 2) / (shape.sum() + 1)
    spread = ((found - mean) @ weights.T) ** 2
    assert (np.abs(spread.mean(0) - variance) / (spread.std(0) / np.sqrt(NUMBER))).max() < 6
    sums = found @ weights[0]
    assert len(np.unique(sums)) > 0.99 * NUMBER  # rows do not repeat each other
    assert abs(np.corrcoef(sums[:-1], sums[1:])[0, 1]) < 6 / np.sqrt(NUMBER)


def test_a_row_follows_from_its_key_and_place():
    shape = jnp.asarray(np.random.default_rng(4).gamma(0.5, 1, (3000, 11)) + 0.1, jnp.float32)
    whole = np.asarray(dirichlet(jax.random.key(5), shape))
    for _ in range(3):  # whoever has drawn it
        np.testing.assert_array_equal(dirichlet(jax.random.key(5), shape), whole)
    np.testing.assert_array_equal(dirichlet(jax.random.key(5), shape[:7]), whole[:7])
    assert (np.asarray(dirichlet(jax.random.key(6), shape)) != whole).mean() > 0.99
    np.testing.assert_array_equal(gamma.dirichlet(jax.random.key(5), shape), whole)  # samplers ask for it


def test_shapes_that_are_no_numbers_are_seen_and_zero_is_zero():
    shape = jnp.asarray([[1.0, np.nan, 2.0], [0.0, 0.5, 3.0], [np.inf, 1.0, 1.0], [1e-4, 1e-4, 1e-4]], jnp.float32)
    bad, zero, infinite, tiny = np.asarray(dirichlet(jax.random.key(7), shape))
    assert np.isnan(bad).any() and np.isnan(infinite).any()
    assert zero[0] == 0 and zero.sum() == pytest.approx(1)
    assert tiny.sum() == pytest.approx(1)  # though every gamma is less than the smallest float


def test_terms_are_counted_and_what_is_none_is_not():
    rng = np.random.default_rng(8)
    terms, topics = rng.integers(0, 8, (3, 50, 4)), rng.integers(0, 5, (3, 50, 4))
    table = np.zeros((5, 7))
    np.add.at(table, (topics[terms < 7], terms[terms < 7]), 1)
    np.testing.assert_array_equal(count_terms(jnp.asarray(terms), jnp.asarray(topics), 5, 7), table)


def test_a_sweep_counts_the_topics_of_documents_where_nobody_has():
    rng = np.random.default_rng(4)
    corpus = layouts.Corpus.from_counts(rng.poisson(0.6, (70, 12)), empty="keep")
    batches = layouts.token_batches(corpus)
    weights = Weights(jnp.asarray(rng.dirichlet(np.ones(5), 13), jnp.float32), jnp.full((1, 5), 0.3), ())
    topics = jnp.asarray(rng.integers(0, 5, batches.terms.shape), jnp.int32)
    given = Given(tuple(jax.random.split(jax.random.key(5))), weights, None)
    counted = count(topics, batches, 5, 12)
    expected, found = (sweep_shards(None, True, given, z, batches) for z in (counted, Assignments(topics, None)))
    for name, left in expected._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), left, err_msg=name)


def test_a_chain_has_the_exact_law(monkeypatch):
    """The whole engine: several shards, topics accepted by a response, theta drawn."""
    monkeypatch.setattr(layouts, "LEAST_SHARED", 0)
    corpus, y, which, kinds = known.copies(known.supervised)
    fit = inference.gibbs(
        known.supervised, corpus, y, num_warmup=30, num_samples=400, num_chains=1, start="random", progress_bar=False
    )
    assert fit.info["sweep"] == build.COMPILED
    theta = fit.draws["theta"][0]
    for number, kind in enumerate(kinds):
        own = theta[:, which == number]
        assert known.standard_errors(own.mean(0), kind.mean).max() < 5.5
        assert known.standard_errors(np.einsum("tck,tcl->ckl", own, own) / len(own), kind.second).max() < 5.5


CHAIN = """
import hashlib, numpy as np
from topiczoo import corpora, inference, models
from topiczoo.corpora import layouts
layouts.LEAST_SHARED = 0
rng = np.random.default_rng(0)
corpus = corpora.Corpus.from_counts(rng.poisson(0.5, (500, 60)) + (rng.uniform(size=60) < 0.1))
fit = inference.gibbs(
    models.slda, corpus, rng.normal(size=500), num_topics=9, num_warmup=3, num_samples=4, num_chains=1, progress_bar=False
)
assert fit.info["sweep"] == "C++"
print(hashlib.sha256(b"".join(fit.draws[name].tobytes() for name in ("theta", "beta"))).hexdigest())
"""


@pytest.mark.longest
def test_threads_change_nothing(tmp_path):
    found = []
    for threads in ("1", "5"):
        environment = {**os.environ, "PJRT_NPROC": threads}
        found.append(subprocess.check_output([sys.executable, "-c", CHAIN], env=environment, cwd=tmp_path))
    assert len(found[0]) > 60 and found[0] == found[1]
