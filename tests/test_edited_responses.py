"""Responses as users put them below topics: computed on the way, of so many trials, by group, of a document's one topic.

Fits are made by hand where what follows from them is known: topics whose terms are their own, so that a document's topics
are known but for one in a million.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from fits import fit_of
from scipy import stats
from scipy.special import expit, logsumexp, softmax

from topiczoo import diagnostics, inference
from topiczoo.corpora import Corpus
from topiczoo.models import draw_bags, draw_words

RNG = np.random.default_rng(11)
K, GROUPS = 3, 4


def proportions_and_topics(corpus, num_topics=K):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.3)))
    return documents, draw_words(corpus, theta, beta)


def plain(corpus, y=None):
    documents, zbar = proportions_and_topics(corpus)
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([K]).to_event(1))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)


def computed(corpus, y=None):
    """The same, with names for what is computed on the way, of documents and of all."""
    documents, zbar = proportions_and_topics(corpus)
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([K]).to_event(1))
    numpyro.deterministic("largest", eta.max())
    mean = numpyro.deterministic("mean", zbar @ eta)
    with documents:
        numpyro.sample("y", dist.Normal(mean, 0.5), obs=y)


def trials(corpus, y=None):
    """So many of a document's readers liked it."""
    documents, zbar = proportions_and_topics(corpus)
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([K]).to_event(1))
    readers = jnp.asarray(corpus.covariates["readers"]).astype(int)
    with documents:
        numpyro.sample("y", dist.Binomial(readers, logits=zbar @ eta), obs=y)


def by_group(corpus, y=None):
    """Coefficients of each group, whose axis stands before that of topics."""
    documents, zbar = proportions_and_topics(corpus)
    with numpyro.plate("groups", GROUPS):
        eta = numpyro.sample("eta", dist.Normal(0, 2).expand([K]).to_event(1))
    group = jnp.asarray(corpus.covariates["group"]).astype(int)
    with documents:
        numpyro.sample("y", dist.Normal((zbar * eta[group]).sum(-1), 0.5), obs=y)


def kinds(corpus, y=None):
    """All words of a document have one topic, and so has its response."""
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    level = numpyro.sample("level", dist.Normal(0, 3).expand([K]).to_event(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        z = numpyro.sample("z", dist.Categorical(share))
    draw_bags(corpus, z, beta)
    with documents:
        numpyro.sample("y", dist.Normal(level[z], 0.5), obs=y)


def documents_of(number=24):
    """Documents of two topics of three terms each and a bit of noise, and a response that follows them."""
    first = RNG.uniform(size=number)
    shares = np.stack([first, 1 - first, np.zeros(number)], 1)
    counts = np.stack([RNG.multinomial(20, np.repeat(share, 3) / 3) for share in shares])
    covariates = {"readers": RNG.integers(1, 9, number), "group": np.arange(number) % GROUPS}
    return Corpus.from_counts(counts, covariates=covariates), (2 * first - 1).astype(np.float32)


def leaning_by_class(corpus, y=None):
    """The class of a document, drawn and then used to index, says which topics it has."""
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    lean = numpyro.sample("lean", dist.Gamma(1.0, 1.0).expand([2, K]).to_event(2))
    with numpyro.plate("documents", corpus.num_documents):
        of_class = numpyro.sample("y", dist.Bernoulli(0.5), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(lean[of_class] + 0.01))
    draw_words(corpus, theta, beta)


CORPUS, Y = documents_of()
OWN = np.maximum(np.kron(np.eye(K), np.full(3, 1 / 3)), 1e-6).astype(np.float32)  # topics with terms of their own
SHARES = CORPUS.counts.toarray().reshape(-1, K, 3).sum(2) / 20
ETA = RNG.normal(size=(2, 4, K)).astype(np.float32)
FOUR = np.broadcast_to(OWN, (2, 4, K, 9))


def test_what_a_story_computes_on_the_way_is_computed_of_new_documents():
    settings = {"num_warmup": 5, "num_samples": 6, "num_chains": 2, "progress_bar": False}
    fits = [inference.gibbs(story, CORPUS[:20], Y[:20], **settings) for story in (plain, computed)]
    assert fits[1].draws["mean"].shape == (2, 6, 20) and fits[1].draws["largest"].shape == (2, 6)
    first, second = (fit.predict(CORPUS[20:], seed=1) for fit in fits)
    np.testing.assert_allclose(first.draws, second.draws, rtol=1e-5, atol=1e-5)
    for rule in ("posterior", "plug-in"):
        assert fits[1].predict(CORPUS[20:], rule=rule).mean.shape == (4,)


def test_trials_differ_from_document_to_document(tmp_path):
    readers = np.asarray(CORPUS.covariates["readers"])
    fit = fit_of(trials, {"beta": FOUR, "eta": ETA}, CORPUS, readers // 2)
    found = fit.predict(CORPUS)
    np.testing.assert_allclose(found.expected, readers * expit(np.einsum("dk,csk->csd", SHARES, ETA)), rtol=1e-3)
    assert (found.draws <= readers).all() and (found.draws.max(0) == readers).any()
    assert diagnostics.report(fit, tmp_path / "report.html", progress_bar=False).stat().st_size > 10_000


def test_topics_may_be_the_second_axis_of_coefficients(tmp_path):
    """The second chain has its topics in another order; matched, they have each group's coefficients of the first."""
    order = np.array([2, 0, 1])
    eta = np.broadcast_to(RNG.normal(size=(GROUPS, K)), (2, 4, GROUPS, K)) + 0.01 * RNG.normal(size=(2, 4, GROUPS, K))
    eta, beta = eta.astype(np.float32), FOUR.copy()
    eta[1], beta[1] = eta[1][..., order], beta[1][:, order]
    fit = fit_of(by_group, {"beta": beta, "eta": eta}, CORPUS, Y)
    assert fit.graph.dims["eta"] == (None, "topic") and fit.by_topic("eta").shape == (2, 4, K, GROUPS)
    aligned = diagnostics.align(fit)
    np.testing.assert_allclose(aligned.draws["eta"].mean(1)[0], aligned.draws["eta"].mean(1)[1], atol=0.05)
    table = fit.topics(2).drop_duplicates("topic")
    for group in range(GROUPS):
        np.testing.assert_allclose(table[f"eta[{group}]"], eta[0, :, group].mean(0), rtol=1e-5)
    group = np.asarray(CORPUS.covariates["group"])
    expected = np.einsum("dk,csdk->csd", SHARES, eta[:, :, group])
    expected[1] = np.einsum("dk,sdk->sd", SHARES[:, order], eta[1][:, group])
    np.testing.assert_allclose(fit.predict(CORPUS).expected, expected, atol=1e-3)
    assert diagnostics.report(fit, tmp_path / "report.html", progress_bar=False).stat().st_size > 10_000
    with pytest.raises(ValueError, match=r"^site is 'eta', whose first axis is not that of topics; "):
        fit.select()


def test_the_response_of_a_documents_one_topic_is_predicted_and_not_the_topic():
    """p(z | w) is known, and so are E[y | w] and p(y | w)."""
    beta = RNG.dirichlet(np.full(9, 2.0), (2, 4, K)).astype(np.float32)
    share = RNG.dirichlet(np.full(K, 3.0), (2, 4)).astype(np.float32)
    fit = fit_of(kinds, {"beta": beta, "share": share, "level": ETA}, CORPUS, Y)
    short = Corpus.from_counts(np.minimum(CORPUS.counts.toarray(), 1))
    logits = np.log(share)[:, :, None] + np.einsum("dv,cskv->csdk", short.counts.toarray(), np.log(beta))
    posterior = softmax(logits, -1)
    assert 0.01 < np.mean(posterior.max(-1) < 0.95)  # not all are sure
    found = fit.predict(short)
    assert found.site == "y" and found.expected.shape == (2, 4, len(short))
    np.testing.assert_allclose(found.expected, np.einsum("csdk,csk->csd", posterior, ETA), rtol=1e-3, atol=1e-3)
    density = np.log(posterior) + stats.norm.logpdf(Y[:, None], ETA[:, :, None], 0.5)
    logs = inference.log_likelihood(fit, short, Y)
    np.testing.assert_allclose(logs, logsumexp(density, -1), rtol=1e-3, atol=1e-3)


def test_every_engine_predicts_the_response_of_a_documents_one_topic():
    """Two kinds of documents, far apart in words and response; vem keeps the topics of documents, nuts sums them out."""
    counts = np.kron(np.eye(2, dtype=int), np.full((12, 3), 4))
    corpus, y = Corpus.from_counts(np.pad(counts, ((0, 0), (0, 3)))), np.repeat([-2.0, 2.0], 12)
    settings = {
        "gibbs": {"num_warmup": 60, "num_samples": 60},
        "vem": {},
        "svi": {"num_steps": 500},
        "nuts": {"num_warmup": 60, "num_samples": 60},
    }
    for engine, own in settings.items():
        fit = getattr(inference, engine)(kinds, corpus, y, progress_bar=False, **own)
        found = fit.predict(corpus)
        assert found.site == "y" and np.abs(found.mean - y).max() < 0.7, engine


def test_what_a_class_looks_up_has_an_axis_of_classes(tmp_path):
    """Chains whose classes have other numbers have the same levels once they are matched."""
    order = np.array([2, 0, 1])
    draws = {"beta": FOUR.copy(), "share": np.full((2, 4, K), 1 / K, np.float32), "level": np.repeat(ETA[:1, :1], 4, 1)}
    draws["level"] = np.concatenate([draws["level"], draws["level"][..., order]])
    draws["beta"][1] = draws["beta"][1][:, order]
    fit = fit_of(kinds, draws, CORPUS, Y)
    assert fit.graph.dims["level"] == ("topic",) and fit.coefficients == ["level"]
    aligned = diagnostics.align(fit).draws["level"]
    np.testing.assert_allclose(aligned[0], aligned[1], rtol=1e-6)
    assert diagnostics.report(fit, tmp_path / "report.html", progress_bar=False).stat().st_size > 10_000


def test_a_class_above_topics_is_simulated_with_the_words():
    """Documents of a class have words of its own topic: mutual information shows in the counts."""
    like = Corpus.from_counts(np.full((300, 6), 10))
    corpus, y = inference.simulate("disclda", like, seed=4, outputs=3, gamma=0.1)
    assert set(np.unique(y)) == {0.0, 1.0, 2.0}
    counts = corpus.counts.toarray()
    of_classes = np.stack([counts[y == label].mean(0) for label in range(3)])
    assert np.ptp(of_classes, axis=0).max() > 3  # of 60 words; sampling alone gives differences of 0.5


@pytest.mark.parametrize("name", ["w", "z"])
def test_names_of_words_and_topics_are_taken(name):
    def story(corpus, y=None):
        documents, zbar = proportions_and_topics(corpus)
        eta = numpyro.sample(name, dist.Normal(0, 2).expand([K]).to_event(1))
        with documents:
            numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)

    sentence = f"^The story 'story' has a site '{name}', and draw_words calls words 'w' and their topics 'z'; give "
    for ask in (inference.gibbs, inference.check, inference.svi):
        with pytest.raises(ValueError, match=sentence):
            ask(story, CORPUS, Y)
    with pytest.raises(ValueError, match=sentence):
        inference.simulate(story, CORPUS)


def test_a_class_that_a_story_indexes_by_is_a_whole_number():
    """y comes as floats; what the site gives back can be an index."""
    y = (Y > 0).astype(float)
    fit = inference.gibbs(leaning_by_class, CORPUS, y, num_warmup=50, num_samples=50, num_chains=1, progress_bar=False)
    found = fit.predict(CORPUS)
    assert (found.code == (Y > 0)).mean() > 0.75
    with pytest.raises(ValueError, match=r"^y of document '0' is 2\.0, outside the support of the site 'y'"):
        inference.gibbs(leaning_by_class, CORPUS, np.where(np.arange(24) == 0, 2.0, y), progress_bar=False)
