"""Two threads may fit at once, LAPACK has one; a process that was forked says what it lacks instead of waiting."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import stories
from fits import fit_of
from threadpoolctl import threadpool_info, threadpool_limits

from topiczoo import inference, models
from topiczoo.inference.programs import blas

CORPUS, Y = stories.small()
TWO = {"num_topics": 2}
FEW = {**TWO, "progress_bar": False}


@pytest.mark.slow
def test_two_threads_fit_at_once():
    """NumPyro's handlers are global: two stories traced at once would see each other's sites."""

    def fit(_):
        return inference.gibbs(models.mixture, CORPUS, num_warmup=1, num_samples=2, num_chains=1, **FEW).draws

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(fit, range(2))
    for site in one:
        np.testing.assert_array_equal(one[site], other[site])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_forked_process_says_how_to_start_one(tmp_path):
    fit = fit_of("slda", {"beta": np.full((1, 1, 2, 9), 1 / 9)}, CORPUS, Y, **TWO)
    path = fit.save(tmp_path / "fit.nc")
    asked = [
        *(lambda name=name: getattr(inference, name)("lda", CORPUS, **FEW) for name in ("gibbs", "nuts", "svi", "vem")),
        lambda: fit.predict(CORPUS),
        lambda: inference.load(path),
    ]

    def child(end):
        for ask in asked:
            try:
                end.send(str(ask()))
            except RuntimeError as error:
                end.send(str(error))

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,), daemon=True)
    process.start()
    try:
        for _ in asked:
            assert ours.poll(30), "the forked process stands still"
            assert "multiprocessing.get_context('spawn')" in ours.recv()
    finally:
        process.kill()
        process.join()


def threads_of_blas():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_lapack_has_one_thread_as_long_as_a_run_lasts():
    """Two runs side by side, of which the first ends first; and one that fails."""
    with threadpool_limits(2, user_api="blas"):
        assert threads_of_blas() == {2}
        first, second = ExitStack(), ExitStack()
        first.enter_context(blas.one_thread())
        second.enter_context(blas.one_thread())
        first.close()
        assert threads_of_blas() == {1}
        second.close()
        assert threads_of_blas() == {2}
        with pytest.raises(RuntimeError), blas.one_thread():
            raise RuntimeError
        assert threads_of_blas() == {2}


def test_an_engine_runs_with_one_thread_of_lapack():
    found = []

    def story(corpus, y=None):
        found.append(threads_of_blas())
        return models.lda(corpus, num_topics=2)

    with threadpool_limits(2, user_api="blas"):
        inference.gibbs(story, CORPUS, num_warmup=1, num_samples=1, num_chains=1, progress_bar=False)
    assert found and all(threads == {1} for threads in found)
