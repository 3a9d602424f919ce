"""Responses of the zoo in whole stories: their conditionals, covariates, and what is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from numpyro import handlers

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.models import RESPONSES, slda_glm

SETTINGS = {
    "binomial": {"options": {"total_count": 7}},
    "ordered": {"options": {"num_classes": 4}},
    "softmax": {"outputs": 3},
}


def simulated(name, num_documents=40, seed=0, **settings):
    """A corpus with a covariate, and responses drawn from the story itself."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(12, 0.1), 3)
    theta = rng.dirichlet(np.full(3, 0.3), num_documents)
    counts = np.array([rng.multinomial(25, share @ beta) for share in theta])
    corpus = Corpus.from_counts(counts, covariates={"age": rng.normal(size=num_documents)})
    eta = np.linspace(-1.5, 1.5, 3)
    columns = settings.get("outputs")
    if columns:
        eta = np.stack([np.roll(eta, c) for c in range(columns)], 1)
    with handlers.seed(rng_seed=seed), handlers.substitute(data={"cuts": np.array([-0.7, 0.0, 0.7])}):
        respond = RESPONSES[name](jax.numpy.asarray(theta @ eta), **(settings.get("options") or {}))
        return corpus, np.asarray(respond.sample(jax.random.key(seed)), float)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ordered"])
def test_every_block_has_the_storys_conditional(name):
    settings = SETTINGS.get(name, {})
    corpus, y = simulated(name, **settings)
    table = inference.check(slda_glm, corpus, y, response=name, num_topics=3, **settings)
    assert table["passes"].all(), table.to_string()


@pytest.mark.slow
def test_covariates_and_several_responses():
    corpus, _ = simulated("normal")
    age = corpus.covariates["age"].to_numpy()
    rng = np.random.default_rng(1)
    y = np.stack([2 * age, -age], 1) + 0.1 * rng.normal(size=(len(corpus), 2))
    fit = inference.gibbs(
        slda_glm, corpus, y, outputs=2, covariates=["age"], num_topics=2, num_warmup=50, num_samples=50, num_chains=1,
        progress_bar=False,
    )  # fmt: skip
    np.testing.assert_allclose(fit.mean("slope_age"), [2, -1], atol=0.15)
    assert set(fit.info["blocks"].values()) >= {"normal draw"}
    assert fit.predict(corpus[:4], most_draws=10).mean.shape == (4, 2)
    assert list(fit.topics(1).columns) == ["chain", "topic", "rank", "term", "probability", "score", "eta[0]", "eta[1]"]
    gap = Corpus.from_counts(corpus.counts[:2], corpus.vocabulary, covariates={"age": [1.0, np.nan]})
    with pytest.raises(ValueError, match="has 'age', which the story 'slda_glm' reads and which is missing for"):
        fit.predict(gap)


@pytest.mark.slow
def test_a_response_of_your_own():
    corpus, y = simulated("poisson")
    from numpyro.distributions import Poisson

    table = inference.check(slda_glm, corpus, y, response=lambda x: Poisson(jax.nn.softplus(x)), num_topics=2)
    assert table["passes"].all(), table.to_string()


def test_responses_outside_the_support_are_refused():
    corpus, _ = simulated("poisson")
    for name, bad in (("logit", 2.0), ("gamma", -0.5), ("ordered", 7.0)):
        y = np.ones(len(corpus))
        y[0], y[3] = 2.0 if name == "gamma" else 0.0, bad
        with pytest.raises(ValueError, match=f"y of document '3' is {bad}, outside the support of the site 'y'"):
            inference.gibbs(slda_glm, corpus, y, response=name, num_topics=2, **SETTINGS.get(name, {}))
