"""Stories of users through every engine: what serves them, whether it is right, and all that follows a fit.

Limits: agreement with exact posteriors at 5 standard errors of the difference, some 10 comparisons a story: a right sampler
fails with probability 6e-6 a story, if errors of autocorrelated draws were known exactly. Geweke's test at a level of 1e-5.
"""

from __future__ import annotations

import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import user_stories
from exact import Exact, standard_errors_apart, summaries
from lengths import longest_but
from numpyro.infer.util import log_density
from user_stories import STORIES, story_of

from topiczoo import diagnostics, inference
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.diagnostics import geweke
from topiczoo.diagnostics.checks import calibration
from topiczoo.inference.marginal.model import Marginal
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import log_prob, run

APART = 5.0
SETTINGS = {
    "gibbs": {"num_warmup": 20, "num_samples": 20},
    "svi": {"num_steps": 60, "num_draws": 20},
    "nuts": {"num_warmup": 10, "num_samples": 10, "max_tree_depth": 4},
    "vem": {},
}
REFUSED = {  # by vem: the site that it names
    "time": "step",
    "authors": "apart",
}
SWEEP = "topic sweep, theta integrated out"
OWN_BLOCKS = {  # beside z, mix, words and pull
    "prevalence": {"lean": "slice draws given counts"},
    "seeded": {},
    "time": {"usual": "NUTS given the rest", "step": "NUTS given the rest"},
    "authors": {"gift": "normal draw", "apart": "NUTS given the rest"},
    "camps": {
        "share": "Dirichlet draw", "mood": "normal draw", "camp": "class of a document, tried value by value"
    },
    "themes of the corpus": {},
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_gibbs_draws_what_it_can_from_exact_conditionals(name):
    corpus, y = user_stories.small(6)
    story, arguments = story_of(name, corpus)
    expected = {"z": SWEEP, "mix": SWEEP, "words": "Dirichlet draw", "pull": "normal draw", **OWN_BLOCKS[name]}
    if name == "time":
        del expected["words"]  # computed
    plan = choose_blocks(read(story, corpus, y, arguments))
    assert plan.describe() == expected
    # a class right before the sweep, which counts words by it and draws theta anew
    assert plan.blocks[-1].sites == ("z", "mix")
    assert name != "camps" or plan.blocks[-2].sites == ("camp",)


@functools.cache
def fitted(name, engine):
    """A small fit, and the documents behind it."""
    corpus, y = user_stories.small()
    story, arguments = story_of(name, corpus)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*diverged")
        fit = getattr(inference, engine)(story, corpus, y, progress_bar=False, **SETTINGS[engine], **arguments)
    return fit, corpus, y


# gibbs takes all of them each time; the others those that ask most of them
LONGEST = [(name, engine) for name in STORIES for engine in ("svi", "nuts") if (name, engine) != ("camps", "svi")]
LONGEST += [("seeded", "vem"), ("themes of the corpus", "vem"), ("authors", "gibbs")]


def table(fast):
    """Stories and engines that serve them."""
    cases = [(name, engine) for engine in SETTINGS for name in STORIES if engine != "vem" or name not in REFUSED]
    return [
        pytest.param(*case, marks=[] if case in fast else pytest.mark.longest if case in LONGEST else pytest.mark.slow)
        for case in cases
    ]


@pytest.mark.parametrize(("name", "engine"), table(fast=[("time", "gibbs"), ("camps", "gibbs")]))
def test_new_documents_are_predicted_and_their_proportions_found(name, engine):
    """Documents are in two piles by their words, and the response follows them."""
    fit, corpus, y = fitted(name, engine)
    found = fit.predict(corpus[:12], most_draws=4)
    assert found.mean.shape == (12,) and found.draws.shape[1:] == (12,) and np.isfinite(found.draws).all()
    assert found.site == "mark"
    shares = fit.transform(corpus[:12], most_draws=4)
    assert shares.shape == (12, 2)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-4)
    logs = inference.log_likelihood(fit, corpus[:12], y[:12], most_draws=2, inner=2)
    assert logs.shape[2:] == (12,) and np.isfinite(logs).all()


@pytest.mark.parametrize(("name", "engine"), table(fast=[]))
def test_topics_have_names_and_are_aligned(name, engine):
    fit, _, _ = fitted(name, engine)
    topics = fit.topics(3)
    assert len(topics) == 6 and set(topics["topic"]) == {0, 1}
    assert topics["probability"].between(0, 1).all() and "pull" in topics
    aligned = diagnostics.align(fit)
    assert len(aligned.alignment.topics) == 2
    assert fit.graph.dims["pull"] == ("topic",) and fit.graph.dims["mix"] == ("document", "topic")


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(STORIES, "prevalence", "camps"))
def test_a_report_is_written(name, tmp_path):
    fit, _, _ = fitted(name, "gibbs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = diagnostics.report(fit, tmp_path / "report.html", documents=3, progress_bar=False)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize("name", ["time", pytest.param("authors", marks=pytest.mark.slow)])
def test_vem_names_what_it_cannot_serve_and_who_can(name):
    corpus, y = user_stories.small(6)
    story, arguments = story_of(name, corpus)
    with pytest.raises(ValueError, match=f"^vem cannot serve the site '{REFUSED[name]}' .*; use gibbs, nuts or svi.$"):
        inference.vem(story, corpus, y, **arguments)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "camps")) for n in STORIES])
def test_every_conditional_is_that_of_the_story(name):
    corpus, y = user_stories.small(6)
    story, arguments = story_of(name, corpus)
    found = inference.check(story, corpus, y, num_documents=3, num_tokens=4, **arguments)
    assert found["passes"].all(), found.to_string()


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(STORIES, "camps"))
def test_gibbs_agrees_with_the_sum_over_all_topics_and_classes(name):
    corpus, y = user_stories.tiny()
    story, arguments = story_of(name, corpus)
    if name == "themes of the corpus":
        corpus = Corpus.from_counts(np.pad(corpus.counts.toarray(), ((0, 0), (0, 1))))
        arguments = {"terms_each": 2}
    exact = Exact(story, corpus, y, **arguments)
    draws, weights = exact.by_weights(8_000 if exact.classes else 80_000)
    assert 1 / (weights**2).sum() > 500  # enough of them count
    settings = {"num_warmup": 250, "num_samples": 3000, "seed": 3, "progress_bar": False}
    fit = inference.gibbs(story, corpus, y, **settings, **arguments)
    found = {f"share of {name}" if name in exact.classes else name: value for name, value in fit.draws.items()}
    apart = standard_errors_apart(summaries(found), summaries(draws, weights))
    assert max(apart.values()) < APART, apart


def of_words(values, corpus, y):
    """Quantities that read words, topics, classes and response."""
    document, term = corpus.tokens()
    z, found = values["z"], {}
    for name in values.keys() - {"z"}:
        flat = jnp.ravel(values[name]).astype(float)
        found |= {f"{name}[0]": flat[0], f"sum of {name}^2": (flat**2).sum()}
    first = (z == 0).astype(float)
    found["first words in first topic"] = (first * (term == 0)).sum()
    found["first topic and response"] = (first * y[document]).sum()
    if "camp" in values:
        found["camp and response"] = (values["camp"] * y).sum()
        found["first words in second camp"] = (values["camp"][document] * (term == 0)).sum()
    if "step" in values:
        found["first words and step"] = (values["step"][0, z, 0] * (term == 0)).sum()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(STORIES, "camps"))
def test_the_joint_distribution_stays(name, monkeypatch):
    """At a level of 1e-5 for all quantities of a story together."""
    monkeypatch.setattr(calibration, "LEVEL", 1e-5)
    rng = np.random.default_rng(0)
    counts = rng.poisson(1.2, (6, 4)) + np.eye(6, 4, dtype=int)
    corpus = Corpus.from_counts(counts, covariates=user_stories.covariates(6))
    story, arguments = story_of(name, corpus)
    settings = {"num_chains": 600, "num_steps": 30, "progress_bar": False}
    found = geweke(story, corpus, quantities=of_words, **settings, **arguments)
    assert found["passes"].all(), found.to_string()


def test_a_class_above_words_is_summed_out():
    """The density of nuts against the sum over all topics and classes; predictors vary little, so points are near exact."""
    corpus, y = user_stories.tiny()
    graph = read(user_stories.in_camps, corpus, y, {"leanings": user_stories.LEANINGS})
    data = documents(corpus, pairs=True, tokens=True), jnp.asarray(y)
    values = {name: value for name, value in graph.few_values.items() if name != "camp"}
    values["pull"], values["mood"] = jnp.array([0.05, -0.05]), jnp.array([-0.7, 0.9])
    model = Marginal(graph, nodes=9, average="density")
    found = jax.jit(lambda values: log_density(model, data, {}, values)[0])(values)
    states = itertools.product(itertools.product(range(2), repeat=3), itertools.product(range(2), repeat=7))
    camp, z = (jnp.array(part) for part in zip(*states, strict=True))

    @jax.jit
    @jax.vmap
    def joint(camp, z):
        trace = run(graph.story, *data, {**values, "camp": camp, "z": z})
        return sum(log_prob(site).sum() for site in trace.values() if site["type"] == "sample")

    np.testing.assert_allclose(found, jax.nn.logsumexp(joint(camp, z)), atol=2e-3)
    # of each document, and what is not of documents
    trace = run(graph.story, *data, {**values, "camp": camp[0], "z": z[0]})
    rest = sum(log_prob(trace[name]).sum() for name in ("share", "pull", "mood", "words"))
    np.testing.assert_allclose(jax.jit(model.document_densities)(*data, values).sum() + rest, found, rtol=1e-5)
