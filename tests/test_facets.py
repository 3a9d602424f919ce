"""Topics of a label: the words' density, deviations that add up, a label told from words, and a latent region."""

from __future__ import annotations

import itertools

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from by_loops import expected_log, words_bound
from lengths import longest_but
from numpyro.infer.util import log_density
from scipy.optimize import minimize
from scipy.special import gammaln, log_softmax, logsumexp, softmax
from scipy.stats import norm

from topiczoo import diagnostics, inference
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference import Fit
from topiczoo.inference.em.additive import additive_topics
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.marginal.model import Marginal
from topiczoo.inference.predictive.class_posterior import ClassPosterior
from topiczoo.inference.predictive.fold_in import FoldIn
from topiczoo.inference.steps.additive import LaplacePenalty, direction, newton
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import log_prob, run
from topiczoo.models import background, draw_words, find_regions, sage_facets, sage_geo, share_of_zeros

QUIET = {"progress_bar": False}
SIDES = np.array(["left", "right"])
TINY = Corpus.from_counts([[2, 1, 0], [0, 1, 1], [1, 0, 1]])


def planted(num_documents=200, length=80, seed=0):
    """Three topics of six terms, two labels of four, and three terms that topic 0 has under label 0 alone."""
    rng = np.random.default_rng(seed)
    topic, label, joint = np.zeros((3, 60)), np.zeros((2, 1, 60)), np.zeros((2, 3, 60))
    for k in range(3):
        topic[k, 6 * k : 6 * k + 6] = 2.0
    for j in range(2):
        label[j, 0, 30 + 4 * j : 34 + 4 * j] = 1.5
    joint[0, 0, 50:53] = 2.0
    common = np.log(rng.dirichlet(np.full(60, 5.0)))
    beta, y = softmax(common + topic + label + joint, -1), np.arange(num_documents) % 2
    theta = rng.dirichlet(np.full(3, 0.2), num_documents)
    counts = [rng.multinomial(length, theta[d] @ beta[y[d]]) for d in range(num_documents)]
    return Corpus.from_counts(np.stack(counts)), y, common


CORPUS, Y, COMMON = planted()
GIVEN = {"background": COMMON, "outputs": 2, "num_topics": 3}


@pytest.fixture(scope="module", params=longest_but(["jeffreys", "laplace"], "laplace"))
def fit(request):
    story = {**GIVEN, "prior": request.param, "scale": 0.2}
    return inference.vem(sage_facets, CORPUS[:160], SIDES[Y[:160]], **story, seed=1, **QUIET)


@pytest.fixture(scope="module")
def made():
    """A fit written down by hand: two draws of deviations."""
    story, rng = {**GIVEN, "prior": "laplace"}, np.random.default_rng(3)
    graph = read(sage_facets, CORPUS[:10], Y[:10], story)
    shapes = {"topic_deviation": (3, 60), "label_deviation": (2, 1, 60), "joint_deviation": (2, 3, 60)}
    draws = {name: rng.laplace(0, 0.7, (1, 2, *shape)).astype(np.float32) for name, shape in shapes.items()}
    return Fit.of(graph, draws, engine="vem")


def rises(fit):
    bound = np.array(fit.info["bound"])
    return (np.diff(bound) > -1e-6 * np.abs(bound[1:])).all()


@pytest.mark.slow
def test_planted_deviations_are_found_in_their_facets(fit):
    topic, label, joint = (fit.means[f"{facet}_deviation"][0] for facet in ("topic", "label", "joint"))
    raised = topic[:, :18].reshape(3, 3, 6).mean(-1)
    assert (raised.max(1) > 1.5).all() and len(set(raised.argmax(1))) == 3
    np.testing.assert_allclose(label[0, 0, 30:34], 1.5, atol=0.5)
    np.testing.assert_allclose(label[1, 0, 34:38], 1.5, atol=0.5)
    own = int(raised[:, 0].argmax())
    # said of topic 0 under label 0: by what is added there, or by what is taken away under label 1
    np.testing.assert_allclose((topic[own] + joint[0, own])[50:53], 2.0, atol=0.7)
    np.testing.assert_allclose((topic[own] + joint[1, own])[50:53], 0.0, atol=0.7)
    assert share_of_zeros(joint) > 0.7 and share_of_zeros(label) > 0.3
    assert rises(fit) and fit.info["converged"]


@pytest.mark.longest
def test_a_saved_fit_is_the_same_and_zeros_take_no_room(fit, tmp_path):
    wide = Corpus.from_counts(np.pad(CORPUS.counts[:20].toarray(), ((0, 0), (0, 20_000))))
    story = {"background": background(wide), "outputs": 2, "num_topics": 3}
    large = inference.vem(sage_facets, wide, Y[:20], **story, num_iterations=1, num_draws=1, **QUIET)
    with h5py.File(large.save(tmp_path / "large.nc")) as file:
        stored = file["posterior"]["joint_deviation"]
        assert stored.id.get_storage_size() < 0.1 * large.draws["joint_deviation"].nbytes
    loaded = inference.load(fit.save(tmp_path / "fit.nc"))
    for site in fit.draws:
        np.testing.assert_array_equal(loaded.draws[site], fit.draws[site])
    np.testing.assert_allclose(
        loaded.predict(CORPUS[160:], rule="plug-in").probabilities,
        fit.predict(CORPUS[160:], rule="plug-in").probabilities,
    )


@pytest.mark.slow
def test_labels_are_told_from_words_and_shown(fit):
    for rule in ("plug-in", "posterior"):
        found = fit.predict(CORPUS[160:], rule=rule)
        assert np.mean(found.label == SIDES[Y[160:]]) > 0.95
    assert fit.transform(CORPUS[160:]).shape == (40, 3)
    table = fit.deviations("label_deviation", 4)
    assert list(table.columns) == ["label", "rank", "term", "deviation"]
    assert set(table.loc[table["label"] == "left", "term"]) == set(CORPUS.vocabulary[30:34])
    assert list(fit.deviations("joint_deviation", 1).columns) == ["label", "topic", "rank", "term", "deviation"]
    assert len(fit.deviations("topic_deviation", 2)) == 6
    np.testing.assert_allclose(fit.topic_terms(0).sum(1), 1, rtol=1e-4)
    with pytest.raises(ValueError, match="'theta' has no axis of terms; give a site of deviations"):
        fit.deviations("theta")


@pytest.mark.longest
def test_documents_without_a_label_are_read_as_well():
    some = np.where(np.arange(len(Y)) < 30, SIDES[Y], None)
    found = inference.vem(sage_facets, CORPUS[:160], some[:160], **GIVEN, prior="laplace", scale=0.2, **QUIET)
    assert rises(found)
    assert "y" not in found.sites and np.isnan(found.y[30:]).all()
    assert np.mean(found.predict(CORPUS[160:], most_draws=4).label == SIDES[Y[160:]]) > 0.9


def test_classes_by_bayes_rule_are_those_of_enumeration(made):
    """p(y, w) by summing over all topics of documents of three words: the bound lies below, and not far."""
    counts = np.zeros((3, 60), int)
    for d, words in enumerate(([0, 31, 50], [7, 35, 59], [12, 12, 33])):
        np.add.at(counts[d], words, 1)
    fold = FoldIn(made, Corpus.from_counts(counts, made.vocabulary))
    values = fold.means(0)
    found, _ = ClassPosterior(fold, "y").log_joint(values)
    parts = (np.asarray(values[f"{facet}_deviation"], float) for facet in ("topic", "label", "joint"))
    beta = softmax(COMMON + sum(parts), -1)
    for d, c in itertools.product(range(3), range(2)):
        words, paths = np.repeat(np.arange(60), counts[d]), []
        for z in itertools.product(range(3), repeat=3):
            topics = gammaln(0.1 + np.bincount(z, minlength=3)).sum() - 3 * gammaln(0.1) + gammaln(0.3) - gammaln(3.3)
            paths.append(topics + np.log(beta[c, list(z), words]).sum())
        exact = np.log(1 / 2) + logsumexp(paths)
        assert found[d, c] < exact + 1e-3 and exact - found[d, c] < 2


@pytest.mark.longest
@pytest.mark.parametrize("prior", ["jeffreys", "laplace"])
def test_a_constant_corpus_and_a_label_of_one_document_stay_at_the_background(prior):
    corpus = Corpus.from_counts(np.array([[30, 20, 10, 0]] * 6))
    story = {"background": background(corpus), "outputs": 2, "num_topics": 2, "prior": prior, "scale": 0.1}
    fit = inference.vem(sage_facets, corpus, np.array([0, 0, 0, 0, 0, 1]), num_draws=1, **story, **QUIET)
    found = [fit.means[f"{facet}_deviation"] for facet in ("topic", "label", "joint")]
    assert (
        all(np.isfinite(value).all() for value in found) and np.mean([share_of_zeros(value) for value in found]) > 0.8
    )
    one_word = fit.predict(Corpus.from_counts(np.eye(4, dtype=int), corpus.vocabulary), rule="plug-in").probabilities
    assert (one_word > 0.2).all()


def labelled(corpus, y=None, *, num_topics=2):
    """Dirichlet topics of each of two labels."""
    with numpyro.plate("labels", 2, dim=-2), numpyro.plate("topics", num_topics, dim=-1):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(jnp.full(2, 0.5)), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    draw_words(corpus, theta, beta, label=y)


def beyond_its_labels(corpus, *, num_topics=2):
    """Topics of two labels, and all documents have a third."""
    with numpyro.plate("labels", 2, dim=-2), numpyro.plate("topics", num_topics, dim=-1):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    draw_words(corpus, theta, beta, label=jnp.full(corpus.num_documents, 2))


def test_the_words_of_a_label_summed_out_are_the_sum_over_topics():
    """The explicit density, summed over all assignments, against what nuts and svi newton."""
    y = np.array([0.0, 1.0, 1.0])
    graph = read(labelled, TINY, y, {})
    explicit, values = documents(TINY, tokens=True, pairs=True), graph.few_values
    marginal = Marginal(graph, nodes=3, average="density")
    data = documents(TINY, pairs=True), jnp.asarray(y)
    found = jax.jit(lambda values: log_density(marginal, data, {}, values)[0])(values)
    every_z = jnp.array(list(itertools.product(range(2), repeat=7)))

    @jax.jit
    @jax.vmap
    def joint(z):
        trace = run(graph.story, explicit, jnp.asarray(y), {**values, "z": z})
        return sum(log_prob(site).sum() for site in trace.values() if site["type"] == "sample")

    np.testing.assert_allclose(found, logsumexp(joint(every_z)), rtol=1e-4)


def test_the_e_step_takes_each_documents_own_topics():
    corpus, y = CORPUS[:20], Y[:20]
    model = EMModel(read(labelled, corpus, y, {}), Settings(e_tolerance=0.0, e_iterations=60))
    start, rng = model.start(np.random.default_rng(0)), np.random.default_rng(1)
    state = model.e_step(start._replace(topics=start.topics + rng.gamma(0.5, 2.0, start.topics.shape)), True)
    counts = np.zeros((2, 2, 60))
    for d, row in enumerate(corpus.counts.toarray()):
        gamma, terms = np.asarray(state.local.gamma[d], float), np.repeat(np.arange(60), row)
        log_beta = model.topics.log_mean(state.topics)[y[d]][:, terms].T
        phi = softmax(expected_log(gamma) + log_beta, axis=1)
        np.testing.assert_allclose(gamma, 0.5 + phi.sum(0), rtol=0.02, atol=0.02)
        np.testing.assert_allclose(state.local.bound[d], words_bound(phi, gamma, log_beta, np.full(2, 0.5)), rtol=1e-4)
        np.add.at(counts[y[d]].T, terms, phi)
    np.testing.assert_allclose(state.counts, counts, rtol=0.01, atol=0.01)
    np.testing.assert_allclose(model.m_step(state, True).topics, state.counts + 1, rtol=1e-6)


@pytest.mark.slow
def test_labelled_dirichlet_topics_are_fitted_and_predicted():
    fit = inference.vem(labelled, CORPUS[:160], Y[:160], num_topics=3, **QUIET)
    assert rises(fit) and fit.means["beta"].shape == (1, 2, 3, 60)
    assert np.mean(fit.predict(CORPUS[160:], rule="plug-in").probabilities.argmax(1) == Y[160:]) > 0.9


def several_sums(seed=0):
    """Two components, in two and three of five sums."""
    rng = np.random.default_rng(seed)
    rest = np.log(rng.dirichlet(np.full(12, 2.0), 5))
    return rng.poisson(6.0, (5, 12)).astype(float), rest, np.array([0, 0, 1, 1, 1])


def test_the_hessian_of_several_sums_is_bounded_by_a_definite_one():
    counts, rest, owner = several_sums()
    beta, weight = softmax(rest, -1), np.random.default_rng(1).gamma(1.0, 0.5, (2, 12))
    for k in range(2):
        total, inside = counts.sum(1)[owner == k], beta[owner == k]
        mean = total @ inside / total.sum()
        diagonal = np.diag(total @ inside + weight[k])
        true = diagonal - np.einsum("j,jv,ju->vu", total, inside, inside)
        ours = diagonal - total.sum() * np.outer(mean, mean)
        assert np.linalg.eigvalsh(true).min() > 0 and np.linalg.eigvalsh(ours - true).min() > -1e-9
        # as printed, with sum_j C_j beta_j in the place of C beta, it is not definite
        printed = diagonal - np.outer(total @ inside, total @ inside)
        assert np.linalg.eigvalsh(printed).min() < 0
        own = total @ inside * np.linspace(0.9, 1.1, 12)  # near by: longer steps are cut
        own *= total.sum() / own.sum()
        gradient = own - total @ inside
        found = direction(*(jnp.asarray(part[None], jnp.float32) for part in (0 * own, own, mean, weight[k])))
        np.testing.assert_allclose(found[0], np.linalg.solve(ours, gradient), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("penalty", [LaplacePenalty(jnp.float32(0.5))], ids=["laplace"])
def test_newton_ends_at_the_optimum_of_all_sums(penalty):
    counts, rest, owner = several_sums()
    parts = (jnp.asarray(part, jnp.float32) for part in (np.full((2, 12), 0.3), counts, rest))
    found = np.asarray(newton(*parts, penalty, 300, 0.0, jnp.asarray(owner)).deviation, float)

    def objective(x, k):
        prior = float(penalty.log_prior(jnp.zeros(12), jnp.asarray(x, jnp.float32)).sum())
        return -(counts[owner == k] * log_softmax(rest[owner == k] + x, axis=1)).sum() - prior

    for k in range(2):
        best = min(minimize(objective, x, args=(k,), method="Powell").fun for x in (found[k], np.zeros(12)))
        assert objective(found[k], k) < best + 5e-3


def add_up(corpus, y=None, *, make, num_topics=3):
    prior = dist.Laplace(0, 0.3).expand([corpus.num_terms]).to_event(1)
    with numpyro.plate("topics", num_topics):
        topic = numpyro.sample("topic_deviation", prior)
    with numpyro.plate("others", 2):
        other = numpyro.sample("other_deviation", prior)
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(jnp.full(2, 0.5)), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    draw_words(corpus, theta, jax.nn.softmax(jnp.asarray(COMMON) + make(topic, other)), label=y)


def test_an_edited_story_is_recognised_by_what_it_adds():
    """A facet may be in some sums only; a product of deviations is another model."""
    only_second = lambda topic, other: topic + jnp.stack([0 * other[0], other[1]])[:, None]  # noqa: E731
    site = additive_topics(read(add_up, CORPUS[:60], Y[:60], {"make": only_second}), Settings())
    assert [facet.name for facet in site.facets] == ["other_deviation", "topic_deviation"]  # the fewer come first
    np.testing.assert_array_equal(site.facets[0].owner, [2, 2, 2, 1, 1, 1])  # 2: none
    np.testing.assert_array_equal(site.facets[1].owner, [0, 1, 2, 0, 1, 2])
    np.testing.assert_allclose(site.rest, np.broadcast_to(COMMON, (2, 3, 60)), atol=1e-4)
    assert site.start_variance == 0.3 and float(site.facets[0].penalty.scale) == np.float32(0.3)
    with pytest.raises(ValueError, match="not a softmax of it plus what is fixed"):
        product = {"make": lambda topic, other: topic * (1 + other[:, None])}
        additive_topics(read(add_up, CORPUS[:60], Y[:60], product), Settings())


@pytest.mark.longest
def test_topics_and_labels_without_interactions_separate():
    fit = inference.vem(add_up, CORPUS, Y, make=lambda topic, other: topic + other[:, None], num_draws=1, **QUIET)
    raised = fit.means["topic_deviation"][0, :, :18].reshape(3, 3, 6).mean(-1)
    assert (raised.max(1) > 1.2).all() and len(set(raised.argmax(1))) == 3
    assert fit.means["other_deviation"][0, 0, 30:34].mean() > 1


@pytest.mark.slow
@pytest.mark.longest
def test_nuts_and_svi_agree_under_a_laplace_prior():
    """The mode lies where the posterior's mass does, for topics of one label and another."""
    corpus = Corpus.from_counts(CORPUS.counts[:60][:, ::4].toarray())
    given = {"background": background(corpus), "outputs": 2, "num_topics": 1, "prior": "laplace", "scale": 0.5}
    mode = inference.vem(sage_facets, corpus, Y[:60], **given, **QUIET).means["label_deviation"][0]
    drawn = inference.nuts(sage_facets, corpus, Y[:60], **given, num_warmup=300, num_samples=300, num_chains=1, **QUIET)
    value = drawn.draws["label_deviation"][0]
    # under a prior with three facets only their sum is well told: the difference between labels
    gap, spread = (value[:, 0] - value[:, 1]).mean(0), (value[:, 0] - value[:, 1]).std(0)
    assert np.mean(np.abs(mode[0] - mode[1] - gap) < 3 * spread) > 0.9
    smooth = inference.svi(sage_facets, corpus, Y[:60], **given, num_steps=3000, **QUIET).mean("label_deviation")
    assert np.corrcoef((smooth[0] - smooth[1]).ravel(), gap.ravel())[0, 1] > 0.9


def places(num_documents=150, seed=0):
    """Three regions with five terms of their own each, two topics, coordinates around three centres."""
    rng = np.random.default_rng(seed)
    topic, label = np.zeros((2, 40)), np.zeros((3, 1, 40))
    for k in range(2):
        topic[k, 6 * k : 6 * k + 6] = 2.0
    for r in range(3):
        label[r, 0, 20 + 5 * r : 25 + 5 * r] = 1.8
    common = np.log(rng.dirichlet(np.full(40, 5.0)))
    beta, centres = softmax(common + topic + label, -1), np.array([[40.0, -100.0], [45.0, -75.0], [30.0, -90.0]])
    region, theta = rng.integers(0, 3, num_documents), rng.dirichlet(np.full(2, 0.3), num_documents)
    counts = [rng.multinomial(60, theta[d] @ beta[region[d]]) for d in range(num_documents)]
    return Corpus.from_counts(np.stack(counts)), centres[region] + rng.normal(0, 1, (num_documents, 2)), common


@pytest.mark.longest
def test_regions_generate_words_and_coordinates():
    corpus, y, common = places()
    centres = find_regions(y[:110])
    assert len(centres) == 3
    story = {"background": common, "centres": centres, "num_topics": 2}
    fit = inference.vem(sage_geo, corpus[:110], y[:110], **story, num_iterations=40, num_draws=20, **QUIET)
    assert rises(fit)
    for r, (centre, spread) in enumerate(zip(fit.means["centre"][0], fit.means["spread"][0], strict=True)):
        near = np.abs(y[:110] - centres[r]).max(1) < 5
        np.testing.assert_allclose(centre, y[:110][near].mean(0), atol=0.1)
        np.testing.assert_allclose(spread, y[:110][near].std(0), rtol=0.2)
    drawn = fit.draws["region"][0, -1]
    assert np.mean(np.abs(fit.means["centre"][0][drawn] - y[:110]).max(1) < 5) > 0.97
    found = fit.predict(corpus[110:], rule="plug-in")
    assert found.mean.shape == (40, 2) and found.draws.shape[1:] == (40, 2)
    assert np.mean(np.abs(found.mean - y[110:]).max(1) < 5) > 0.9
    fold = FoldIn(fit, corpus[110:])
    shares, _ = ClassPosterior(fold, "region")(fold.means(0))
    np.testing.assert_allclose(found.mean, shares @ fit.means["centre"][0], rtol=1e-4)
    assert fit.transform(corpus[110:]).shape == (40, 2)
    # p(y | w) is a mixture over regions
    told = inference.log_likelihood(fit, corpus[110:], y[110:], most_draws=1)[0, 0]
    centre, spread = (np.asarray(fit.means[name][0], float) for name in ("centre", "spread"))
    given = norm.logpdf(y[110:][:, None], centre, spread).sum(-1)
    np.testing.assert_allclose(told, logsumexp(np.log(shares) + given, axis=1), rtol=1e-3, atol=1e-3)
    assert diagnostics.scores(fit, corpus[110:], y[110:]).loc[("y[1]", "r2"), "value"] > 0.8
    with pytest.raises(ValueError, match="topics are those of a label"):
        diagnostics.perplexity(fit, corpus[110:])


def test_the_number_of_regions_may_be_given():
    _, y, _ = places()
    assert find_regions(y, 5).shape == (5, 2)
    found = find_regions(y)  # as many as there are
    truth = np.array([[30.0, -90.0], [40.0, -100.0], [45.0, -75.0]])
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], truth, atol=1)
    for wrong, words in (
        ({"places": y[:, 0]}, r"places has shape \(150,\) or holds NaN; give finite coordinates"),
        ({"places": np.ones((9, 2)), "number": 2}, "number is 2 and most is 30 for 1 different places; give 1 to 1"),
    ):
        with pytest.raises(ValueError, match=words):
            find_regions(**wrong)


def test_what_cannot_be_served_is_said(made):
    with pytest.raises(ValueError, match="topics are those of a label, which new documents do not come with"):
        diagnostics.check_words(made)
    with pytest.raises(ValueError, match=r"draw_words got the label 2 .* and beta has topics for the labels 0 to 1"):
        inference.gibbs(beyond_its_labels, CORPUS[:20])
    theta, beta = jnp.full((3, 2), 0.5), jnp.full((2, 2, 3), 1 / 3)
    for given, words in (
        ((theta, beta), r"beta of shape \(2, 2, 3\); .* with a label as \[labels, topics, terms\]"),
        ((theta, beta, jnp.zeros(2, int)), r"a label of shape \(2,\); give one label a document, \(3,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            draw_words(TINY, *given)
