"""Gibbs against the exact posterior, where every assignment of topics can be summed.

Limit: 5 standard errors of the difference, by effective sample sizes, which are themselves estimates. Of some 8
comparisons in the fast tests and 100 in the slow ones a right sampler fails in 1e-5 and 6e-5 of runs.
"""

from __future__ import annotations

import pytest
import stories
from exact import Exact, standard_errors_apart, summaries

from topiczoo import inference, models

APART = 5.0
PRIORS = {"num_topics": 2, "alpha": 0.5, "gamma": 0.5}


def gibbs(story, corpus, y=None, **arguments):
    fit = inference.gibbs(
        story, corpus, y, num_warmup=250, num_samples=3000, num_chains=2, seed=3, progress_bar=False, **arguments
    )
    return summaries({name: value for name, value in fit.draws.items() if name != "z"})


# blocks have exact tests of their own; here they work together, with NUTS beside them, the rest slowly
FAST = [(stories.poisson, {})]
SLOW = [(models.lda, PRIORS), (models.mixture, PRIORS), (models.slda, PRIORS)]
SLOW += [(s, {}) for s in (*stories.REAL, stories.negative_binomial) if s is not stories.laplace_eta]
LONGEST = (
    models.mixture,
    stories.asymmetric_alpha,
    stories.squared_shares,
    stories.mean_and_scale,
    stories.student_t,
    stories.random_effect,
    stories.response_reads_theta,
    stories.latent_below,
    stories.logistic_normal,
    stories.negative_binomial,
)
CASES = [
    *FAST,
    *(
        pytest.param(*case, marks=[pytest.mark.slow, *([pytest.mark.longest] if case[0] in LONGEST else [])])
        for case in SLOW
    ),
]


@pytest.mark.parametrize(("story", "arguments"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_gibbs_agrees_with_the_sum_over_all_topics(story, arguments):
    corpus, y = stories.tiny(counts=story in stories.COUNTS)
    responses = (None,) if story in (models.lda, models.mixture) else (y,)
    exact = Exact(story, corpus, *responses, **arguments).summaries()
    apart = standard_errors_apart(gibbs(story, corpus, *responses, **arguments), exact)
    assert max(apart.values()) < APART, apart


@pytest.mark.longest
def test_the_fully_collapsed_sampler_agrees_with_the_sum_over_all_topics():
    corpus, y = stories.tiny()
    exact = Exact(models.slda, corpus, y, **PRIORS).summaries()
    apart = standard_errors_apart(gibbs(models.slda, corpus, y, collapse="topics", **PRIORS), exact)
    assert max(apart.values()) < APART, apart


@pytest.mark.slow
def test_nuts_on_the_exact_marginal_agrees_with_the_sum_over_all_topics():
    corpus, _ = stories.tiny()
    exact = Exact(models.lda, corpus, None, **PRIORS)
    apart = standard_errors_apart(summaries(exact.by_nuts()), summaries(*exact.by_weights()))
    assert max(apart.values()) < APART, apart
