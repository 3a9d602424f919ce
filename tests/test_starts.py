"""Where chains start: twice as many topics merged by the log joint density, or seeds, each chain for itself."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import user_stories
from lengths import longest_but, slow_but
from scipy.special import gammaln

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.gpu import choosing
from topiczoo.inference.mcmc import chains, merging, starts
from topiczoo.inference.mcmc.merging import in_order, merged
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models import draw_words, lda, slda

ALPHA, GAMMA = 0.3, 0.2


def log_joint(document_topic, topic_term):
    """Of topics and words with theta and beta integrated out, up to what topics do not change, theta's by a quarter."""
    words = gammaln(GAMMA + topic_term).sum() - gammaln(GAMMA * topic_term.shape[1] + topic_term.sum(1)).sum()
    return words + 0.25 * gammaln(ALPHA + document_topic).sum()


def joined(tables, i, j):
    """The tables with topic j put into topic i."""
    new = []
    for table in (tables[0].T, tables[1]):
        table = table.copy()
        table[i] += table[j]
        new.append(np.delete(table, j, 0))
    return new[0].T, new[1]


def tables_of(seed, topics=7, documents=12, terms=9):
    rng = np.random.default_rng(seed)
    cells = rng.poisson(rng.gamma(0.3, 4.0, (documents, topics, terms)))
    return cells.sum(2).astype(np.float32), cells.sum(0).astype(np.float32)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_two_topics_are_merged_that_cost_the_log_joint_least(seed):
    tables = tables_of(seed)
    pairs = [(i, j) for i in range(7) for j in range(i + 1, 7)]
    best = max(pairs, key=lambda pair: log_joint(*joined(tables, *pair)))
    becomes = merged(*tables, 6, ALPHA, GAMMA)
    found = [(i, j) for i, j in pairs if becomes[i] == becomes[j]]
    assert found == [best] and set(becomes) == set(range(6))


@pytest.mark.parametrize("seed", range(5, 15))
def test_merging_goes_on_with_the_topics_that_were_merged(seed):
    """Six steps by hand: after each the best of all pairs of what is left."""
    tables, groups = tables_of(seed, 12, 40, 15), [{k} for k in range(12)]
    for _ in range(6):
        pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
        i, j = max(pairs, key=lambda pair: log_joint(*joined(tables, *pair)))
        tables, groups[i] = joined(tables, i, j), groups[i] | groups[j]
        del groups[j]
    becomes = merged(*tables_of(seed, 12, 40, 15), 6, ALPHA, GAMMA)
    assert sorted(map(sorted, groups)) == sorted(sorted(np.flatnonzero(becomes == k)) for k in range(6))


@pytest.mark.parametrize("parts", [2, 3])
def test_topics_dealt_to_several_are_put_together_again(parts):
    """Each of four topics with terms of its own was dealt by chance to several, so that with three the topic of two of them
    must be merged once more; an empty topic is the first to go."""
    rng = np.random.default_rng(0)
    whole = rng.poisson(6.0, (30, 4, 1)) * np.eye(4).repeat(5, 1)[None]  # [documents, topics, terms]
    dealt = rng.multinomial(whole.astype(int), np.full(parts, 1 / parts))  # [documents, topics, terms, parts]
    cells = np.concatenate([*np.moveaxis(dealt, -1, 0), np.zeros((30, 1, 20))], 1)
    becomes = merged(cells.sum(2), cells.sum(0), 4, ALPHA, GAMMA, weight=1.0)
    found = becomes[:-1].reshape(parts, 4)
    assert (found == found[0]).all() and len(set(found[0])) == 4


def test_topics_are_near_by_their_shares_of_terms_however_large_they_are(monkeypatch):
    """A large topic and a small one of the same words, and one of others that is smaller still."""
    terms = np.array([[100, 3, 0, 2], [9000, 300, 40, 250], [4, 9, 9, 1]])
    documents = np.array([[60, 5000, 20], [45, 4590, 20]])
    every = merged(documents, terms, 2, 0.5, 0.1)
    monkeypatch.setattr(merging, "NEAREST", 1)
    np.testing.assert_array_equal(merged(documents, terms, 2, 0.5, 0.1), every)
    assert every[0] == every[1] != every[2]


def test_some_documents_speak_for_all_by_as_much_as_there_are(monkeypatch):
    """Every document three times, of which one is looked at: the same topics are merged as by all of them."""
    rng, less = np.random.default_rng(0), 0
    for _ in range(60):
        documents = np.repeat(rng.poisson(rng.gamma(0.5, 4, (10, 6))), 3, 0)
        terms = rng.poisson(rng.gamma(0.3, 6, (6, 20)))
        monkeypatch.setattr(merging, "MOST_DOCUMENTS", 1000)
        whole = merging.merged(documents, terms, 4, 0.3, 0.1)
        third = merging.merged(documents, terms, 4, 0.3, 0.1, weight=merging.OF_DOCUMENTS / 3)
        monkeypatch.setattr(merging, "MOST_DOCUMENTS", 10)
        np.testing.assert_array_equal(merging.merged(documents, terms, 4, 0.3, 0.1), whole)
        less += (third != whole).any()
    assert less > 3


def test_a_gpu_finds_the_same_gains(monkeypatch):
    """Its program, run here, where all else of the merging is the same."""
    tables = tables_of(3, 30, 50, 40)
    plain = [merged(*tables, number, ALPHA, GAMMA) for number in (29, 20, 4)]
    monkeypatch.setattr(merging.jax, "default_backend", lambda: "gpu")
    asked = []
    gains = merging.gains_of_pairs
    monkeypatch.setattr(merging, "gains_of_pairs", lambda *args: asked.append(len(args[1])) or gains(*args))
    for number, becomes in zip((29, 20, 4), plain, strict=True):
        np.testing.assert_array_equal(merged(*tables, number, ALPHA, GAMMA), becomes)
    assert asked == [30] * 3


def test_topics_near_to_a_merged_one_are_found(monkeypatch):
    """Three topics of the same documents, the third like the second alone; a fourth is a little like the first."""
    monkeypatch.setattr(merging, "NEAREST", 1)
    terms = np.array([[10, 10, 0, 0], [0, 10, 10, 0], [0, 0, 10, 1], [1, 0, 0, 20]])
    documents = np.array([[10, 10, 5, 0], [10, 10, 6, 0], [0, 0, 0, 10], [0, 0, 0, 11]])
    np.testing.assert_array_equal(merged(documents, terms, 2, ALPHA, GAMMA, weight=1.0), [0, 0, 0, 1])


def test_topics_take_the_numbers_at_which_their_priors_fit():
    terms = np.array([[0.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 0.0, 0.0]])
    documents = np.full((4, 3), 2.0)
    gamma = np.array([[5.0, 0.1, 0.1], [0.1, 5.0, 0.1], [0.1, 0.1, 5.0]])
    found = in_order(np.arange(3), documents, terms, np.full(3, 0.5), gamma)
    np.testing.assert_array_equal(found, [1, 2, 0])
    used = np.array([[9.0, 1.0, 0.0]] * 4)
    found = in_order(np.arange(3), used, np.ones((3, 3)), np.array([0.1, 1.0, 9.0]), np.full((3, 1), 0.2))
    np.testing.assert_array_equal(found, [2, 1, 0])
    np.testing.assert_array_equal(in_order(np.arange(3), used, terms, np.ones(3), np.ones((3, 1))), np.arange(3))


def piles(number=60, topics=4, length=40, seed=0):
    """Documents of one topic each, with terms of its own."""
    rng = np.random.default_rng(seed)
    shares = np.eye(topics).repeat(6, 1) * 0.94 / 6 + 0.06 / (6 * topics)
    return Corpus.from_counts(np.stack([rng.multinomial(length, shares[d % topics]) for d in range(number)]))


@pytest.mark.slow
def test_chains_start_each_in_its_own_place_and_near_the_topics_of_the_corpus(monkeypatch):
    """One draw after the start: nearly all words of a document are in one topic already, and chains number otherwise."""
    monkeypatch.setattr(starts, "FEWEST_TOKENS", 0)
    corpus = piles()
    settings = {"num_warmup": 1, "num_samples": 1, "num_chains": 3, "progress_bar": False, "num_topics": 4}
    fit = inference.gibbs(lda, corpus, **settings)
    assert fit.info["start"] == "merged"
    own = fit.draws["theta"][:, 0].argmax(-1)  # [chains, documents]
    assert [len(set(map(tuple, np.stack([row, np.arange(60) % 4], 1)))) for row in own] == [4, 4, 4]
    assert len({tuple(row) for row in own}) > 1
    random = inference.gibbs(lda, corpus, start="random", **settings)
    assert random.info["start"] == "random"
    assert fit.statistics["lp"].min() > random.statistics["lp"].max() + 100


@pytest.mark.parametrize("number", [1, 2])
def test_chains_in_one_state_start_where_chains_of_their_own_do(monkeypatch, number):
    """As an accelerator runs them, one chain or several."""
    monkeypatch.setattr(starts, "FEWEST_TOKENS", 0)
    monkeypatch.setattr(chains.Chains, "_ready", lambda self, steps: None)  # the program of a step, which none takes
    graph = read(lda, piles(), None, {"num_topics": 4})
    data = Data(graph.documents(batches=True), graph.response.on_device())
    kernel, begin = choose_blocks(graph).kernel(), starts.start_topics("merged", None, graph, data, 1)
    keys, found = jax.random.split(jax.random.key(3), number), []
    for one_state in (False, True):
        monkeypatch.setattr(chains, "together", lambda one_state=one_state: one_state)
        states = chains.Chains(kernel, keys, data, chains.Schedule(1, 1), begin).states
        found.append(np.stack([np.asarray(state.z["z"].topics) for state in states]))
    assert len(set(map(bytes, found[0]))) == number
    np.testing.assert_array_equal(found[1][0], found[0])


def test_topics_that_go_together_in_documents_are_not_merged_for_that():
    """Two piles that documents have both of, another pile in two halves: the halves are merged."""
    rng = np.random.default_rng(2)
    shares = np.eye(3).repeat(6, 1) / 6  # three topics with terms of their own
    documents, terms = np.zeros((80, 4)), np.zeros((4, 18))
    for d in range(80):
        for k, of in enumerate((0, 1, 2, 2)):
            own = rng.multinomial(8 if (d % 2 == 0) == (of < 2) and (of < 2 or d // 2 % 2 == k - 2) else 0, shares[of])
            terms[k] += own
            documents[d, k] = own.sum()
    becomes = merged(documents, terms, 3, 0.1, 0.05)
    assert becomes[2] == becomes[3] and len(set(becomes[:3])) == 3


def test_topics_that_are_merged_have_no_words_from_then_on():
    """Sweeps between keep to the topics that are left, each stage to fewer."""
    graph = read(lda, piles(), None, {"num_topics": 4})
    batches = Data(graph.documents(batches=True), graph.response.on_device()).documents.laid_out
    numbers, tokens = [], int(graph.corpus.num_tokens)

    def sweep(told, z):
        z = starts.swept(told, z, batches, 24)
        counts = np.asarray(z.topic_term).sum(1)
        numbers.append(int((np.asarray(told.weights.proportions) > 0).sum()))
        assert counts.sum() == tokens == np.asarray(z.document_topic).sum() and not counts[numbers[-1] :].any()
        return z

    z = starts._first(jax.random.key(0), batches, 8, 24)
    sweeps = partial(merging.one_by_one, sweep)
    [(z, new)] = merging.fewer_and_fewer([jax.random.key(1)], [z], 4, *starts.priors(graph), 180, sweeps)
    assert numbers == [8] * merging.SWEEPS + [7] * 6 + [6] * 6 + [5] * 6  # a thirtieth of a warm-up of 180
    for num_warmup, first, between in ((0, 5, 1), (20, 20, 2), (60, 30, 4)):  # who asks for few sweeps waits for few
        numbers.clear()
        merging.fewer_and_fewer(
            [jax.random.key(1)],
            [starts._first(jax.random.key(0), batches, 8, 24)],
            4,
            *starts.priors(graph),
            num_warmup,
            sweeps,
        )
        assert numbers == [8] * first + [7] * between + [6] * between + [5] * between
    assert len(new) == 8 and set(new) == set(range(4))
    fewer = merging.renumbered(new, z, 4)
    np.testing.assert_array_equal(fewer.topic_term.sum(0), graph.corpus.counts.toarray().sum(0))
    np.testing.assert_array_equal(fewer.document_topic.sum(1), graph.corpus.lengths)
    assert fewer.topics.max() < 4
    becomes = np.r_[new, 4, 4][:8]  # as a GPU does it: of topics behind the last there are no words
    for there, here in zip(merging._renumbered(becomes, z, 4), fewer, strict=True):
        np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize("number", [1, 2])
def test_sweeps_in_one_program_are_those_one_by_one(monkeypatch, number):
    """As a GPU makes them, its kernel run step by step here."""
    graph = read(lda, piles(), None, {"num_topics": 4})
    batches = Data(graph.documents(batches=True), graph.response.on_device()).documents.laid_out
    keys = [jax.random.key(i) for i in range(number)]
    given = [starts._first(key, batches, 8, 24) for key in keys], keys, range(2, 5), np.full((1, 8), 0.1, np.float32)
    sweep = partial(starts.swept, batches=batches, num_terms=24)
    plain = merging.one_by_one(sweep, *given, np.float32(0.1))
    monkeypatch.setattr(choosing, "INTERPRETED", True)
    together = starts._swept_by_kernel(batches, 24, *given, np.float32(0.1))
    for one, other, first in zip(together, plain, given[0], strict=True):
        np.testing.assert_array_equal(one.document_topic, other.document_topic)
        np.testing.assert_array_equal(one.topic_term, other.topic_term)
        assert (np.asarray(one.topic_term) != np.asarray(first.topic_term)).any()


def test_a_small_corpus_starts_at_random():
    fit = inference.gibbs(lda, piles(20), num_topics=2, num_warmup=1, num_samples=1, num_chains=1, progress_bar=False)
    assert fit.info["start"] == "random"


def own_alpha(corpus, y=None):
    """Documents of odd number have other topics than the rest."""
    alpha = jnp.where(corpus.covariates["odd"][:, None] == jnp.arange(4) % 2, 0.5, 1e-4)
    with numpyro.plate("topics", 4):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(alpha))
    draw_words(corpus, theta, beta)


def odd_piles():
    counts = piles().counts
    return Corpus.from_counts(counts, covariates={"odd": np.arange(counts.shape[0]) % 2})


def test_documents_with_topics_of_their_own_start_from_these():
    """Merged topics know nothing of who may have them."""
    corpus = odd_piles()
    assert starts.choose_start("merged", read(lda, corpus, None, {"num_topics": 4})) == ("merged", None)
    graph = read(own_alpha, corpus, None, {})
    assert starts.choose_start("random", graph) == ("random", None)
    own = np.where(np.asarray(corpus.covariates["odd"])[:, None] == np.arange(4) % 2, 0.5, 1e-4)
    for asked in (None, "merged", "seeded"):
        found, (topics, proportions) = starts.choose_start(asked, graph)
        assert found == "seeded"
        np.testing.assert_allclose(proportions, own / own.sum(1, keepdims=True), rtol=1e-5)
        np.testing.assert_allclose(topics, 1 / corpus.num_terms, rtol=1e-5)


def test_every_word_begins_in_a_topic_that_its_document_may_have():
    graph = read(own_alpha, odd_piles(), None, {})
    data = Data(graph.documents(batches=True), graph.response.on_device())
    _, expected = starts.choose_start(None, graph)
    values = {**graph.few_values, "theta": jnp.asarray(expected.proportions)}
    counts = np.asarray(starts._seeded(graph, data, expected, [jax.random.key(0)], [values])[0].document_topic)
    assert counts[expected.proportions < 0.1].sum() < 0.01 * counts.sum()
    assert (counts.sum(0) > 0.2 * counts.sum()).all()


@pytest.mark.slow
def test_chains_of_labelled_documents_end_alike():
    """Six labels, and words that all have: from random topics three chains of four end in traps."""
    rng = np.random.default_rng(0)
    labels = rng.uniform(size=(300, 6)) < 0.3
    beta = rng.dirichlet(np.full(200, 0.05), 7)
    weight = np.c_[labels, np.ones(300)] * rng.gamma(0.5, size=(300, 7))
    counts = np.stack([rng.multinomial(60, part @ beta / part.sum()) for part in weight])
    names = [f"label {k}" for k in range(6)]
    corpus = Corpus.from_counts(counts, covariates=dict(zip(names, labels.T.astype(int), strict=True)))
    settings = {
        "num_warmup": 100,
        "num_samples": 20,
        "num_chains": 4,
        "progress_bar": False,
        "labels": names,
        "shared": 1,
    }
    worst = {}
    for start in (None, "random"):
        fit = inference.gibbs(models.labelled_lda, corpus, start=start, leak=0.01, gamma=0.05, **settings)
        found = [np.asarray(fit.mean("beta", chain=chain), float) for chain in range(4)]
        worst[start] = [min(np.corrcoef(*pair)[0, 1] for pair in zip(beta, one, strict=True)) for one in found]
    assert min(worst[None]) > 0.95
    assert min(worst["random"]) < 0.5, "random topics do as well here: the case shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(user_stories.STORIES, "prevalence", "camps"))
def test_every_story_starts_from_merged_topics_but_for_those_whose_topics_differ_beforehand(monkeypatch, name):
    monkeypatch.setattr(starts, "FEWEST_TOKENS", 0)
    corpus, y = user_stories.small(12)
    story, arguments = user_stories.story_of(name, corpus)
    fit = inference.gibbs(story, corpus, y, num_warmup=2, num_samples=2, num_chains=1, progress_bar=False, **arguments)
    expected = {"camps": "random", "seeded": "seeded"}  # a camp has topics of its own; seeds tell topics apart
    assert fit.info["start"] == expected.get(name, "merged")
    assert all(np.isfinite(value).all() for value in jax.tree.leaves(dict(fit.draws)))


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match=r"^start is 'best'; give 'merged' or 'seeded' or 'random'\.$"):
        inference.gibbs(slda, piles(), np.arange(60.0), num_topics=2, start="best")


SEEDED = {
    "seeded_lda": {"weight": 5.0},  # of some hundred words that a topic has
    "keyatm": {},
}


@pytest.mark.parametrize("name", slow_but(SEEDED, "seeded_lda"))
def test_seeded_topics_start_from_their_seeds(name):
    """A pile's topic is the one that has one of its terms as a seed, in all chains, and documents are in it at once."""
    corpus, story = piles(), getattr(models, name)
    seeds = np.eye(4, dtype=bool)[::-1].repeat(6, 1) & (np.arange(24) % 6 == 2)
    settings = {"num_warmup": 20, "num_samples": 1, "num_chains": 3, "progress_bar": False, "num_topics": 4}
    fit = inference.gibbs(story, corpus, seeds=seeds, **SEEDED[name], **settings)
    assert fit.info["start"] == "seeded"
    own = fit.draws["theta"][:, 0].argmax(-1)  # [chains, documents]
    assert (own == 3 - np.arange(60) % 4).mean() > 0.95


@pytest.mark.parametrize(("name", "more"), SEEDED.items())
def test_what_topics_are_expected_to_be(name, more):
    """Of seeded_lda the mean of the Dirichlet prior; of keyatm all terms alike, and a topic's keywords alike behind them."""
    seeds = np.zeros((2, 24), bool)
    seeds[0, [3, 5]], seeds[1, 7] = True, True
    graph = read(getattr(models, name), piles(), None, {"num_topics": 3, "seeds": seeds, **more})
    found, expected = starts.choose_start(None, graph)
    assert found == "seeded"
    prior = 0.1 + 5.0 * np.r_[seeds, np.zeros((1, 24))] if name == "seeded_lda" else np.r_[np.ones((3, 24)), seeds]
    np.testing.assert_allclose(expected.topics, prior / prior.sum(1, keepdims=True), rtol=1e-5)
    assert expected.proportions is None


def test_words_are_drawn_given_what_topics_are_expected_to_be():
    """Terms that one topic alone is expected to have are in it, and the others in any."""
    graph = read(lda, piles(), None, {"num_topics": 4})
    data = Data(graph.documents(batches=True), graph.response.on_device())
    expected = np.full((4, 24), 1 / 24)
    expected[:, :4] = np.eye(4)
    batches = data.documents.laid_out
    z = starts.swept(
        starts.expected_given(jax.random.key(1), starts.Expected(expected)),
        starts._first(jax.random.key(0), batches, 4, 24),
        batches,
        24,
    )
    np.testing.assert_array_equal(np.asarray(z.topic_term)[:, :4] > 0, np.eye(4, dtype=bool))
    others = np.asarray(z.topic_term)[:, 4:].sum(1)
    assert others.min() > 0.2 * others.sum()


def test_topics_without_words_of_their_own_do_not_start_from_seeds():
    graph = read(lda, piles(), None, {"num_topics": 4})
    with pytest.raises(ValueError, match="no topic of the story 'lda' has words, or documents, of its own beforehand"):
        starts.choose_start("seeded", graph)
    seeded = read(models.seeded_lda, piles(), None, {"num_topics": 4, "seeds": np.eye(1, 24, dtype=bool)})
    assert starts.choose_start("merged", seeded)[0] == "merged"
    assert starts.choose_start(None, seeded, is_weighed=True)[0] == "seeded"
    assert starts.choose_start(None, graph, is_weighed=True)[0] == "random"
