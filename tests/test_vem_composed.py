"""Variational EM as a composition: stories that one form never served, and settings that a story has no use for."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
import user_stories
from by_loops import expected_log, log_polya, words_bound
from lengths import slow_but
from scipy.special import digamma, logsumexp, softmax

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.engine import vem
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.steps.dirichlet import dirichlet_bound
from topiczoo.inference.story.reading import read
from topiczoo.models import background, draw_bags, draw_words, lda, medlda, mixture, sage_topics, slda

QUIET = {"progress_bar": False, "num_draws": 2}
TINY = Corpus.from_counts(np.array([[2, 1, 0], [0, 1, 2]]))
DOCUMENT, TERM = TINY.tokens()
CONCENTRATIONS = np.array([[0.4, 1.5], [2.0, 0.3]])  # of theta given each of two classes
SEEDS = np.array([[3.0, 0.2, 0.5], [0.2, 0.4, 2.5]])


def seeded(texts, *, seeds):
    """Seeded topics: a concentration for each topic and term, and as many topics as there are seeds."""
    with numpyro.plate("themes", len(seeds)):
        themes = numpyro.sample("themes_of_terms", dist.Dirichlet(jnp.asarray(seeds)))
    with numpyro.plate("texts", texts.num_documents):
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.full(len(seeds), 0.5)))
    draw_words(texts, mix, themes)


def class_of_proportions(corpus):
    """A latent class of each document says which topics it is likely to take."""
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.array([1.5, 1.0])))
    with numpyro.plate("documents", corpus.num_documents):
        c = numpyro.sample("c", dist.Categorical(pi))
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.asarray(CONCENTRATIONS)[c]))
    draw_words(corpus, theta, beta)


def class_of_topics(corpus):
    """A latent class of each document has topics of its own."""
    with numpyro.plate("classes", 2, dim=-2), numpyro.plate("topics", 2, dim=-1):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.array([1.5, 1.0])))
    with numpyro.plate("documents", corpus.num_documents):
        c = numpyro.sample("c", dist.Categorical(pi))
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(2, 0.5)))
    draw_words(corpus, theta, beta, label=c)


def labelled(corpus, y=None, *, group):
    """Topics of an observed group, and a response of them."""
    with numpyro.plate("groups", 2, dim=-2), numpyro.plate("topics", 2, dim=-1):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(2, 0.5)))
    zbar = draw_words(corpus, theta, beta, label=corpus.covariates[group].astype(int))
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.4), obs=y)


def evidence(classes, gamma=0.7, labels=False):
    """Of two documents of three words, with two topics: classes and topics of words enumerated, the rest integrated out."""
    paths = []
    for c in itertools.product(range(classes), repeat=2):
        for z in itertools.product(range(2), repeat=6):
            of_documents, of_topics = np.zeros((2, 2)), np.zeros((classes if labels else 1, 2, 3))
            np.add.at(of_documents, (DOCUMENT, z), 1)
            np.add.at(of_topics, (np.array(c)[DOCUMENT] if labels else 0, np.array(z), TERM), 1)
            alpha = CONCENTRATIONS[list(c)] if classes > 1 and not labels else np.full((2, 2), 0.5)
            prior = log_polya(np.bincount(c, minlength=2), np.array([1.5, 1.0])) if classes > 1 else 0.0
            paths.append(prior + log_polya(of_documents, alpha).sum() + log_polya(of_topics, gamma).sum())
    return logsumexp(paths)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "exact", "arguments"),
    [
        (seeded, evidence(1, SEEDS), {"seeds": SEEDS}),
        (class_of_proportions, evidence(2), {}),
        (class_of_topics, evidence(2, labels=True), {}),
    ],
)
def test_the_bound_rises_and_lies_below_the_exact_evidence(story, exact, arguments):
    fit = vem(story, TINY, tolerance=1e-7, seed=1, **arguments, **QUIET)
    bound = np.array(fit.info["bound"])
    assert (np.diff(bound) > -1e-6 * np.abs(bound[1:])).all()
    assert exact - 4 < bound[-1] < exact
    assert set(fit.draws) == set(read(story, TINY, None, arguments).latent)


def test_the_e_step_of_a_class_above_proportions_is_that_of_loops():
    """For each class the documents' gamma under its alpha; q(c) by Bayes' rule, the words' bound for their likelihood."""
    corpus = Corpus.from_counts(np.random.default_rng(0).poisson(2.0, (6, 9)) + 1)
    model = EMModel(read(class_of_proportions, corpus, None, {}), Settings(e_tolerance=0.0, e_iterations=400))
    assert model.words.alpha.shape == (2, 6, 2)
    start = model.start(np.random.default_rng(0))
    topics = start.topics + np.random.default_rng(1).gamma(0.5, 2.0, start.topics.shape)
    state = model.e_step(start._replace(topics=topics, classes={"pi": np.array([3.0, 7.0])}), True)
    log_beta, joint, counts = expected_log(topics), np.zeros((2, 6)), np.zeros((2, 9))
    for j, d in itertools.product(range(2), range(6)):
        terms = np.repeat(np.arange(9), corpus.counts.toarray()[d])
        gamma = np.asarray(state.local.gamma[j, d], float)
        phi = softmax(expected_log(gamma) + log_beta[:, terms].T, axis=1)
        np.testing.assert_allclose(gamma, CONCENTRATIONS[j] + phi.sum(0), rtol=0.02, atol=0.02)
        joint[j, d] = words_bound(phi, gamma, log_beta[:, terms].T, CONCENTRATIONS[j])
        joint[j, d] += expected_log(np.array([3.0, 7.0]))[j]
        np.add.at(counts.T, terms, state.local.shares[j, d] * phi)
    np.testing.assert_allclose(state.local.shares, softmax(joint, axis=0), atol=2e-3)
    np.testing.assert_allclose(state.counts, counts, rtol=0.01, atol=0.01)
    whole = logsumexp(joint, axis=0).sum() + dirichlet_bound(np.array([1.5, 1.0]), np.array([3.0, 7.0]))
    np.testing.assert_allclose(model.bound(state), whole + dirichlet_bound(np.full(9, 0.7), topics).sum(), rtol=1e-5)
    moved = model.m_step(state, True)
    np.testing.assert_allclose(moved.classes["pi"], state.local.shares.sum(1) + [1.5, 1.0], rtol=1e-4)
    np.testing.assert_allclose(moved.topics, state.counts + 0.7)


def test_alpha_under_a_class_is_fitted_to_what_its_classes_have():
    """Where the slope of sum q(c) E[log p(theta_d | alpha)] is 0."""
    corpus = Corpus.from_counts(np.random.default_rng(0).poisson(2.0, (12, 9)) + 1)
    model = EMModel(read(class_of_topics, corpus, None, {}), Settings(estimate_alpha=True))
    state = model.start(np.random.default_rng(0))
    topics = state.topics + np.random.default_rng(1).gamma(0.5, 9.0, state.topics.shape)
    state = model.e_step(state._replace(topics=topics), True)
    alpha, shares = model.words.next_alpha(state, False), np.asarray(state.local.shares, float)
    logs = (shares[..., None] * expected_log(np.asarray(state.local.gamma, float))).sum((0, 1))
    np.testing.assert_allclose(digamma(alpha) - digamma(alpha.sum()), logs / 12, atol=1e-3)
    plain = expected_log(np.asarray(state.local.gamma, float)).mean((0, 1))
    assert np.abs(plain - logs / 12).max() > 0.01, "the classes have the same: the case shows nothing"


def test_the_bound_of_a_class_has_the_prior_of_its_points():
    """A number of each class beside its share."""

    def levels(corpus, y=None):
        with numpyro.plate("topics", 2):
            beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
        pi = numpyro.sample("pi", dist.Dirichlet(jnp.array([1.5, 1.0])))
        level = numpyro.sample("level", dist.Normal(0, 0.3).expand([2]).to_event(1))
        with numpyro.plate("documents", corpus.num_documents):
            c = numpyro.sample("c", dist.Categorical(pi))
            numpyro.sample("y", dist.Normal(level[c], 0.4), obs=y)
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.array(CONCENTRATIONS)[c]))
        draw_words(corpus, theta, beta)

    corpus = Corpus.from_counts(np.random.default_rng(0).poisson(2.0, (6, 9)) + 1)
    model = EMModel(read(levels, corpus, np.linspace(-1, 1, 6), {}), Settings())
    state, found = model.start(np.random.default_rng(0)), []
    for level in (np.zeros(2), np.array([0.3, -0.6])):
        classes = {**state.classes, "level": jnp.asarray(level, jnp.float32)}
        found.append(model.classes.bound(state._replace(classes=classes)))
    np.testing.assert_allclose(found[1] - found[0], -(1 + 4) / 2, rtol=1e-4)


def test_the_turn_of_a_class_above_topics_and_response_is_that_of_loops():
    """For each class its words' phi and its response; q(c) by Bayes' rule; eta and the class's own shift at the best place
    of the response's expectation, in which a document counts in each class with its share."""
    rng, number = np.random.default_rng(0), 6
    corpus, y = Corpus.from_counts(rng.poisson(2.0, (number, 5)) + 1), rng.normal(size=number)
    leanings = np.array([[0.6, 1.5], [2.0, 0.4]])
    graph = read(user_stories.in_camps, corpus, y, {"leanings": leanings})
    model = EMModel(graph, Settings(e_tolerance=0.0, e_iterations=400))
    start = model.start(np.random.default_rng(0))
    topics = start.topics + np.random.default_rng(1).gamma(0.5, 2.0, start.topics.shape)
    values = {"pull": jnp.array([-0.8, 1.1]), "mood": jnp.array([0.5, -0.4])}
    state = model.e_step(start._replace(topics=topics, response=values, classes={"share": np.array([3.0, 7.0])}), True)
    log_beta, joint, shares = expected_log(topics), np.zeros((2, number)), state.local.shares
    counts, means, seconds = np.zeros((2, 2, 5)), np.zeros((2, number, 2)), np.zeros((2, number, 2, 2))
    for j, d in itertools.product(range(2), range(number)):
        terms = np.repeat(np.arange(5), corpus.counts.toarray()[d])
        local = jax.tree.map(lambda leaf, d=d: np.asarray(leaf[d], float), state.statistics[j].local)
        phi = softmax(expected_log(local.gamma) + local.tilt + log_beta[j][:, terms].T, axis=1)
        np.testing.assert_allclose(local.gamma, leanings[j] + phi.sum(0), rtol=0.02, atol=0.02)
        means[j, d] = phi.mean(0)
        spread = (np.diag(phi.sum(0)) - phi.T @ phi) / len(terms) ** 2
        seconds[j, d] = np.outer(means[j, d], means[j, d]) + spread
        residual = y[d] - values["mood"][j]
        square = (
            residual**2 - 2 * residual * means[j, d] @ values["pull"] + values["pull"] @ seconds[j, d] @ values["pull"]
        )
        joint[j, d] = words_bound(phi, local.gamma, log_beta[j][:, terms].T, leanings[j])
        joint[j, d] += expected_log(np.array([3.0, 7.0]))[j] - square / (2 * 0.25) - np.log(0.5 * np.sqrt(2 * np.pi))
        np.add.at(counts[j].T, terms, shares[j, d] * phi)
    np.testing.assert_allclose(shares, softmax(joint, axis=0), atol=2e-3)
    np.testing.assert_allclose(state.local.bound, logsumexp(joint, axis=0), rtol=1e-4)
    np.testing.assert_allclose(state.counts, counts, rtol=0.01, atol=0.01)
    moved = model.m_step(state, True)
    pull, mood = (np.asarray(moved.response[name], float) for name in ("pull", "mood"))
    weighed = np.einsum("jd,jdkl->kl", shares, seconds) / 0.25 + np.eye(2)  # pull and mood have a prior N(0, 1)
    aim = np.einsum("jd,jdk->k", shares * (y - np.asarray(values["mood"])[:, None]), means) / 0.25
    np.testing.assert_allclose(pull, np.linalg.solve(weighed, aim), rtol=2e-3, atol=2e-3)
    left = (shares * (y - means @ pull)).sum(1) / 0.25
    np.testing.assert_allclose(mood, left / (shares.sum(1) / 0.25 + 1), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(moved.classes["share"], shares.sum(1) + 2.0, rtol=1e-4)


@pytest.mark.parametrize("order", slow_but(["parallel", "sequential"], "sequential"))
def test_a_class_with_a_response_rises_or_says_why_not(order):
    corpus, y = user_stories.small(12)
    arguments = {"leanings": user_stories.LEANINGS}
    if order == "sequential":
        with pytest.raises(ValueError, match=r"site 'mark' .*order='sequential' knows no label and no latent class"):
            vem(user_stories.in_camps, corpus, y, order=order, **arguments, **QUIET)
        return
    fit = vem(user_stories.in_camps, corpus, y, **arguments, **QUIET)
    bound = np.array(fit.info["bound"])
    assert (np.diff(bound) > -1e-6 * np.abs(bound[1:])).all() and bound[-1] > bound[0] + 10
    assert set(fit.draws) == {"mix", "words", "share", "camp", "pull", "mood"}


def test_a_response_goes_with_topics_of_an_observed_group():
    """Each group's words are counted for its own topics, and the bound rises."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(3.0, (12, 6)) + 1
    corpus = Corpus.from_counts(counts, covariates={"side": np.arange(12) % 2})
    model = EMModel(read(labelled, corpus, rng.normal(size=12), {"group": "side"}), Settings())
    state = model.start(rng)
    bounds = []
    for _ in range(4):
        state = model.e_step(state, not bounds)
        bounds.append(model.bound(state))
        for side in range(2):
            np.testing.assert_allclose(state.counts[side].sum(0), counts[side::2].sum(0), rtol=1e-4)
        state = model.m_step(state, False)
    assert (np.diff(bounds) > -1e-6 * np.abs(bounds[1:])).all()


# what a story has no use for


def observed_classes(corpus, y=None):
    with numpyro.plate("topics", 3):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    with numpyro.plate("documents", corpus.num_documents):
        draw_bags(corpus, jnp.asarray(y, int), beta)


CORPUS = Corpus.from_counts(np.random.default_rng(3).poisson(1.0, (12, 8)) + (np.arange(8) == 0))
REAL, CLASSES = np.linspace(-1, 1, 12), np.arange(12) % 2.0


@pytest.mark.parametrize(
    ("story", "y", "arguments", "setting"),
    [
        (lda, None, {"num_topics": 2}, {"order": "sequential"}),
        (lda, None, {"num_topics": 2}, {"slack": "one"}),
        (lda, None, {"num_topics": 2}, {"guarded": False}),
        (lda, None, {"num_topics": 2}, {"start_variance": 1.0}),
        (lda, None, {"num_topics": 2}, {"start": "uniform"}),
        (lda, None, {"num_topics": 2}, {"expectation": "delta"}),
        (lda, None, {"num_topics": 2}, {"point": "mle"}),
        (slda, REAL, {"num_topics": 2}, {"slack": "one"}),
        (slda, REAL, {"num_topics": 2}, {"guarded": False}),
        (slda, REAL, {"num_topics": 2}, {"start_variance": 1.0}),
        (medlda, CLASSES, {"num_topics": 2, "margin": "binary"}, {"order": "sequential"}),
        (medlda, CLASSES, {"num_topics": 2, "margin": "binary"}, {"expectation": "delta"}),
        (medlda, CLASSES, {"num_topics": 2, "margin": "binary"}, {"point": "mle"}),
        (medlda, REAL, {"num_topics": 2, "margin": "regression"}, {"guarded": False}),
        (mixture, None, {"num_topics": 2}, {"estimate_alpha": True}),
        (mixture, None, {"num_topics": 2}, {"e_iterations": 5}),
        (mixture, None, {"num_topics": 2}, {"e_tolerance": 0.1}),
        (sage_topics, None, {"num_topics": 2, "background": background(CORPUS)}, {"order": "sequential"}),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(story, y, arguments, setting):
    ((name, value),) = setting.items()
    sentence = f"^{name} is {value!r}, which asks for .*, and the story '{story.__name__}' has none; leave {name} out.$"
    with pytest.raises(ValueError, match=sentence):
        vem(story, CORPUS, y, **arguments, **setting, **QUIET)


def author_effects(corpus, y=None, *, authors=3):
    """A random effect of the author on the response."""
    beta, eta = stories.topics(corpus, 2), stories.coefficients(2)
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("authors", authors):
        effect = numpyro.sample("effect", dist.Normal(0, spread))
    zbar = draw_words(corpus, stories.proportions(corpus, 2), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta + effect[corpus.covariates["author"].astype(int)], 0.5), obs=y)


@pytest.mark.parametrize(
    ("story", "site"),
    [(stories.logistic_normal, "logits"), (author_effects, "spread"), (stories.random_effect, "effect")],
)
def test_what_is_beyond_closed_forms_is_refused_by_name_with_the_engines_that_take_it(story, site):
    """Asking the engines takes long: one story asks, the others are looked at without advice."""
    run, advice = (inference.vem, "; use .*gibbs") if story is stories.logistic_normal else (vem, "")
    corpus = Corpus.from_counts(CORPUS.counts, covariates={"author": np.arange(12) % 3})
    with pytest.raises(ValueError, match=f"vem cannot serve the site '{site}' .*{advice}"):
        run(story, corpus, REAL, **QUIET)


def test_observed_classes_alone_are_counted():
    """naive Bayes with all classes known: the posterior is exact, and so is the bound."""
    fit = vem(observed_classes, CORPUS, np.arange(12) % 3.0, **QUIET)
    counts = np.stack([CORPUS.counts.toarray()[k::3].sum(0) for k in range(3)])
    expected = (counts + 0.5) / (counts + 0.5).sum(1, keepdims=True)
    np.testing.assert_allclose(fit.means["beta"][0], expected, rtol=1e-4)
    np.testing.assert_allclose(fit.info["bound"][-1], log_polya(counts, 0.5).sum(), rtol=1e-5)
