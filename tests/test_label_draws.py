"""Topics of a label and classes of documents as Gibbs draws them, at known parameters, against the sum over all of them.

Limits: means of 110 independent copies are compared at 5.5 standard errors, some 25 of them a case: a right sampler fails
with probability 1e-6 a case.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import known_parameters as known
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import gammaln
from test_topic_draws import in_shards, laid_out_alone
from user_stories import in_camps

from topiczoo import inference
from topiczoo.corpora import Corpus, layouts
from topiczoo.inference import Fit
from topiczoo.inference.blocks.labels import word_terms
from topiczoo.inference.kernels.assignments import Labels, count
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.predictive.class_posterior import ClassPosterior, label_above
from topiczoo.inference.predictive.fold_in import FoldIn
from topiczoo.inference.story.assignments import TopicAssignments
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models import draw_words

FAR = 5.5
NUM_DRAWS, WARM_UP = 300, 30
PI = np.array([0.35, 0.65], np.float32)
ALPHA = np.array([[0.4, 0.9, 0.6], [1.2, 0.3, 0.5]], np.float32)  # [class, topic]
BETA = np.random.default_rng(5).dirichlet(np.full(5, 0.8), (2, 3)).astype(np.float32)  # [class, topic, term]
ETA, MOOD, SIGMA = np.array([-1.0, 0.5, 1.5], np.float32), np.array([-0.3, 0.4], np.float32), 0.7
FIVE, THREE = ([0, 1, 2, 3, 4], 0.6), ([2, 2, 4], -0.2)  # terms and response


def everywhere(corpus, y=None):
    """The class drives proportions, words and response."""
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        camp = numpyro.sample("camp", dist.Categorical(jnp.asarray(PI)))
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.asarray(ALPHA)[camp]))
    used = draw_words(corpus, mix, jnp.asarray(BETA), label=camp)
    with papers:
        numpyro.sample("mark", dist.Normal(used @ jnp.asarray(ETA) + jnp.asarray(MOOD)[camp], SIGMA), obs=y)


def of_shares(corpus, y=None):
    """The class says what the proportions are; words and response are common to all."""
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        camp = numpyro.sample("camp", dist.Categorical(jnp.asarray(PI)))
    shares = jnp.asarray(ALPHA / ALPHA.sum(1, keepdims=True))[camp]
    used = draw_words(corpus, shares, jnp.asarray(BETA[0]))
    with papers:
        numpyro.sample("mark", dist.Normal(used @ jnp.asarray(ETA), SIGMA), obs=y)


def by_length(corpus, y=None):
    """The label follows from the corpus: long documents have topics of their own."""
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.asarray(ALPHA)[0]))
    used = draw_words(corpus, mix, jnp.asarray(BETA), label=corpus.lengths > 4)
    with papers:
        numpyro.sample("mark", dist.Normal(used @ jnp.asarray(ETA), SIGMA), obs=y)


class Document:
    """One document, and the exact law of its class and topics."""

    def __init__(self, terms, y, story):
        every = list(itertools.product(range(2), *[range(3)] * len(terms)))
        if story is by_length:
            every = [state for state in every if state[0] == (len(terms) > 4)]
        states = np.array(every)
        self.camp, z = states[:, 0], states[:, 1:]
        self.counts = np.eye(3)[z].sum(1)
        alpha = (ALPHA[[0]] if story is by_length else ALPHA[self.camp]).astype(float)
        label = self.camp if story is not of_shares else np.zeros_like(self.camp)
        log_prob = np.log(BETA.astype(float))[label[:, None], z, terms].sum(1)
        if story is not by_length:
            log_prob += np.log(PI[self.camp])
        if story is of_shares:
            log_prob += (self.counts * np.log(alpha / alpha.sum(1, keepdims=True))).sum(1)
        else:
            log_prob += (gammaln(self.counts + alpha) - gammaln(alpha)).sum(1)
            log_prob += gammaln(alpha.sum(1)) - gammaln(alpha.sum(1) + len(terms))
        mean = self.counts / len(terms) @ ETA + (MOOD[self.camp] if story is everywhere else 0)
        log_prob += stats.norm.logpdf(y, mean, SIGMA)
        self.p = np.exp(log_prob - log_prob.max())
        self.p /= self.p.sum()
        posterior = self.counts + alpha
        self.mix = self.p @ (posterior / posterior.sum(1, keepdims=True))


def copies(story, number=110):
    """A corpus of copies of two documents in mixed order, their responses, and which is which."""
    which = np.random.default_rng(2).permutation(np.repeat([0, 1], number))
    counts = np.array([np.bincount(terms, minlength=5) for terms, _ in (FIVE, THREE)])
    y = np.array([response for _, response in (FIVE, THREE)])
    return Corpus.from_counts(counts[which]), y[which], which


def counted(z, batches, corpus, label):
    """The tables of counts, written down."""
    topics, (document, term) = batches.of_tokens(z.topics, z.long), corpus.tokens()
    of_documents, of_labels = np.zeros((len(corpus), 3)), np.zeros((2, 3, 5))
    np.add.at(of_documents, (document, topics), 1)
    np.add.at(of_labels, (np.asarray(label)[document], topics, term), 1)
    return of_documents, of_labels


CASES = [(everywhere, None), (of_shares, None), (by_length, None), (everywhere, laid_out_alone)]


@pytest.mark.parametrize(
    ("story", "layout"),
    [*CASES, pytest.param(by_length, laid_out_alone, marks=pytest.mark.slow)],
    ids=["everywhere", "of_shares", "by_length", "everywhere_alone", "by_length_alone"],
)
def test_classes_and_topics_have_their_exact_law(monkeypatch, story, layout):
    """The blocks of class and topics, drawn again and again."""
    if layout is not None:
        layout(monkeypatch)
    corpus, y, which = copies(story)
    graph = read(story, corpus, y, {})
    blocks = choose_blocks(graph).blocks
    num_draws = NUM_DRAWS if layout is None else 100  # dearer
    data = layouts.documents(corpus, batches=True)
    assert (data.batches.long is None) == (layout is None)
    mix, label = np.full((len(corpus), 3), 1 / 3, np.float32), np.asarray(corpus.lengths > 4, np.int32)
    beta = BETA[0] if story is of_shares else BETA
    start = TopicAssignments(mix, beta, data.batches, label=None if story is of_shares else label)

    @jax.jit
    def run(key, data, y):
        def step(values, key):
            for block, own in zip(blocks, jax.random.split(key, len(blocks)), strict=True):
                values = values | block.draw(own, values, Data(data, y))[0]
            return values, (values["z"].document_topic, values.get("camp"), values.get("mix"))

        values = {"camp": jnp.asarray(label), "mix": jnp.asarray(mix), "z": start.sample(key)}
        values = {name: values[name] for name in ("z", *graph.latent)}
        return jax.lax.scan(step, values, jax.random.split(jax.random.fold_in(key, 1), WARM_UP + num_draws))

    with jax.debug_key_reuse(True):  # no key is used twice
        last, drawn = jax.tree.map(np.asarray, run(jax.random.key(0), data, y))
    of_documents, of_labels = counted(last["z"], data.batches, corpus, last.get("camp", label))
    np.testing.assert_array_equal(last["z"].document_topic, of_documents)
    np.testing.assert_array_equal(last["z"].topic_term, of_labels.sum(0) if story is of_shares else of_labels)
    counts, camp, mix = (None if part is None else part[WARM_UP:] for part in drawn)
    for number, document in enumerate(Document(*kind, story) for kind in (FIVE, THREE)):
        own = counts[:, which == number]
        assert known.standard_errors(own.mean(0), document.p @ document.counts).max() < FAR
        if mix is not None:
            assert known.standard_errors(mix[:, which == number].mean(0), document.mix).max() < FAR
        if camp is not None:
            second = camp[:, which == number]
            assert known.standard_errors(second.mean(0), document.p @ document.camp).max() < FAR
            both = (own * second[..., None]).mean(0)
            assert known.standard_errors(both, document.p @ (document.counts * document.camp[:, None])).max() < FAR


@pytest.mark.slow
def test_threads_draw_classes_with_the_exact_law(monkeypatch):
    """In three programs, of which the second sweeps the shards: labels travel with them."""
    corpus, y, which = copies(everywhere)
    in_shards(monkeypatch)
    fit = inference.gibbs(everywhere, corpus, y, num_warmup=WARM_UP, num_samples=NUM_DRAWS, progress_bar=False)
    for number, document in enumerate(Document(*kind, everywhere) for kind in (FIVE, THREE)):
        for chain in range(2):
            camp, mix = (fit.draws[name][chain][:, which == number].mean(0) for name in ("camp", "mix"))
            assert known.standard_errors(camp, document.p @ document.camp).max() < FAR
            assert known.standard_errors(mix, document.mix).max() < FAR


@pytest.mark.parametrize("layout", [None, laid_out_alone], ids=["batches", "alone"])
def test_words_are_counted_and_weighed_by_their_label(monkeypatch, layout):
    if layout is not None:
        layout(monkeypatch)
    rng = np.random.default_rng(3)
    corpus = Corpus.from_counts(rng.poisson(1.0, (9, 5)) + 1)
    batches, label = layouts.documents(corpus, batches=True).batches, rng.integers(0, 2, 9)
    drawn = TopicAssignments(jnp.ones((9, 3)) / 3, jnp.asarray(BETA), batches, label=jnp.asarray(label))
    z = jax.jit(drawn.sample)(jax.random.key(1))
    of_documents, of_labels = counted(z, batches, corpus, label)
    np.testing.assert_array_equal(z.document_topic, of_documents)
    np.testing.assert_array_equal(z.topic_term, of_labels)
    again = jax.jit(count, static_argnums=(2, 3))(
        z.topics, batches, 3, 5, z.long, Labels.of(jnp.asarray(label), BETA.shape)
    )
    np.testing.assert_array_equal(again.topic_term, of_labels)
    np.testing.assert_allclose(
        drawn.log_prob(z), (of_labels * np.log(BETA)).sum() + np.log(1 / 3) * corpus.num_tokens, rtol=1e-5
    )
    data, other = layouts.documents(corpus, batches=True), 1 - label
    topics, (document, term) = batches.of_tokens(z.topics, z.long), corpus.tokens()
    expected = np.bincount(document, np.log(BETA)[other[document], topics, term], minlength=9)
    found = jax.jit(word_terms)(z, data, jnp.log(BETA), jnp.asarray(other))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_reads_topics_below_a_class_is_a_mixture_over_classes():
    """Mean, draws and density of a response at known parameters, given the shares of classes that Bayes' rule finds."""
    corpus, y, which = copies(everywhere)
    graph = read(in_camps, corpus, y, {"leanings": ALPHA})
    draws = {"words": BETA, "share": PI, "pull": ETA, "mood": MOOD}
    fit = Fit.of(graph, {name: value[None, None] for name, value in draws.items()}, engine="nuts")
    fold = FoldIn(fit, corpus)
    assert label_above(fold.graph, fit.sites) == "camp"  # summed out by the engine: there are no draws of it
    classes, values = ClassPosterior(fold, "camp"), fold.means(0)
    assert classes.answers == ["mark"]
    shares, _ = classes(values)
    told = classes.part(jax.random.key(0), values, 20)["mark"]
    density = np.exp(inference.log_likelihood(fit, corpus, y)[0, 0])
    for number, (terms, response) in enumerate((FIVE, THREE)):
        own, p = which == number, shares[which == number][0]
        np.testing.assert_allclose(shares[own], np.tile(p, (110, 1)), rtol=1e-4)
        first = second = likelihood = 0.0
        for camp in range(2):
            states = np.array(list(itertools.product(range(3), repeat=len(terms))))
            counts = np.eye(3)[states].sum(1)
            log_prob = np.log(BETA.astype(float))[camp, states, terms].sum(1) + gammaln(counts + ALPHA[camp]).sum(1)
            weight = np.exp(log_prob - log_prob.max())
            mean = counts / len(terms) @ ETA + MOOD[camp]
            weight *= p[camp] / weight.sum()
            first, second = first + weight @ mean, second + weight @ (mean**2 + 0.25)
            likelihood += weight @ stats.norm.pdf(response, mean, 0.5)
        assert known.standard_errors(told["mean"][own], first).max() < FAR
        assert known.standard_errors(told["draw"][:, own].mean(0), first).max() < FAR
        assert known.standard_errors((told["draw"][:, own] ** 2).mean(0), second).max() < FAR
        assert known.standard_errors(density[own], likelihood).max() < FAR
