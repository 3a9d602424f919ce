"""Gibbs against the exact posterior, where every assignment of topics can be summed.

Tolerance: 4 standard errors of the difference, from effective sample sizes. With about 60 comparisons and fixed seeds the
chance that a right sampler had failed is below 0.4%.
"""

from __future__ import annotations

import pytest
import stories
from exact import exact_draws, standard_errors_apart

from topiczoo import inference, models

APART = 4.0


def gibbs(story, corpus, y=None, **arguments):
    fit = inference.gibbs(
        story, corpus, y, num_warmup=500, num_samples=6000, num_chains=2, seed=3, progress_bar=False, **arguments
    )
    return {name: value for name, value in fit.draws.items() if name != "z"}


CASES = [
    (models.lda, {"num_topics": 2, "alpha": 0.5, "gamma": 0.5}),
    (models.mixture, {"num_topics": 2, "alpha": 0.8, "gamma": 0.5}),
    (models.slda, {"num_topics": 2, "alpha": 0.5, "gamma": 0.5}),
    *((story, {}) for story in (*stories.REAL, *stories.COUNTS)),
]


@pytest.mark.parametrize(("story", "arguments"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_gibbs_agrees_with_the_sum_over_all_topics(story, arguments):
    corpus, y = stories.tiny(counts=story in stories.COUNTS)
    responses = (None,) if story in (models.lda, models.mixture) else (y,)
    exact = exact_draws(story, corpus, *responses, **arguments)
    apart = standard_errors_apart(gibbs(story, corpus, *responses, **arguments), exact)
    assert max(apart.values()) < APART, apart
    if story is models.slda:  # the lecture's sampler, beta integrated out as well
        apart = standard_errors_apart(gibbs(story, corpus, y, collapse="topics", **arguments), exact)
        assert max(apart.values()) < APART, apart


def test_fully_and_partially_collapsed_samplers_agree():
    corpus, _ = stories.tiny()
    arguments = {"num_topics": 2, "alpha": 0.5, "gamma": 0.5}
    fast, full = (gibbs(models.lda, corpus, collapse=which, **arguments) for which in ("proportions", "topics"))
    apart = standard_errors_apart(fast, full)
    assert max(apart.values()) < APART, apart
