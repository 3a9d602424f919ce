"""Two threads may fit at once; a process that was forked says what it lacks in the place of waiting for it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import stories
from fits import fit_of

from topiczoo import inference, models

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
