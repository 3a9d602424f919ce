"""Sparse additive components: the Newton step, what is found and what is not, and who refuses an improper prior."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from lengths import longest_but
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import digamma, gammaln, log_softmax, logsumexp, softmax
from scipy.stats import norm

from topiczoo import diagnostics, inference
from topiczoo.corpora import Corpus
from topiczoo.inference.em.additive import additive_topics
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.steps.additive import (
    WIDTH,
    JeffreysPenalty,
    LaplacePenalty,
    NormalPenalty,
    direction,
    first_deviation,
    newton,
)
from topiczoo.inference.story.reading import read
from topiczoo.models import NormalJeffreys, background, draw_words, sage_nb, sage_topics, share_of_zeros

NAMES = np.array(["east", "north", "west"])
QUIET = {"progress_bar": False}
LAPLACE = {"prior": "laplace", "scale": 0.5}


def planted(num_documents=120, length=60, seed=0):
    """Three classes, each with five of 60 terms said e^2 times as often as the background has them."""
    rng = np.random.default_rng(seed)
    deviation, y = np.zeros((3, 60)), np.arange(num_documents) % 3
    for k in range(3):
        deviation[k, 5 * k : 5 * k + 5] = 2.0
    common = np.log(rng.dirichlet(np.full(60, 5.0)))
    beta = softmax(common + deviation, axis=1)
    return Corpus.from_counts(np.stack([rng.multinomial(length, beta[k]) for k in y])), y, deviation, common


CORPUS, Y, DEVIATION, COMMON = planted()
GIVEN = {"background": COMMON, "outputs": 3}
JEFFREYS = {**GIVEN, "prior": "jeffreys"}


def small_problem(seed=0):
    rng = np.random.default_rng(seed)
    rest = np.log(rng.dirichlet(np.full(12, 2.0)))
    return rng.poisson(5.0, (2, 12)).astype(float), rest, rng.normal(0, 1, (2, 12))


def test_the_newton_step_is_that_of_the_full_hessian():
    counts, rest, _ = small_problem()
    deviation = 0.8 * (log_softmax(np.log(counts + 1), axis=1) - rest)  # near by: longer steps are cut
    weight = np.random.default_rng(1).gamma(1.0, 5.0, deviation.shape)
    beta = softmax(rest + deviation, axis=1)
    found = direction(*(jnp.asarray(part, jnp.float32) for part in (deviation, counts, beta, weight)))
    for k in range(2):
        total = counts[k].sum()
        hessian = total * np.outer(beta[k], beta[k]) - np.diag(total * beta[k] + weight[k])
        gradient = counts[k] - total * beta[k] - weight[k] * deviation[k]
        np.testing.assert_allclose(found[k], -np.linalg.solve(hessian, gradient), rtol=1e-3, atol=1e-4)


class FixedWeights(LaplacePenalty):
    """tau given: what is left is a ridge with a weight for each term."""

    def weight(self, deviation):
        return self.scale

    def log_prior(self, deviation, step):
        return -0.5 * self.scale * step * (2 * deviation + step)


def test_newton_ends_at_the_optimum_that_scipy_finds():
    """With tau fixed, and under the Laplace prior itself."""
    counts, rest, first = small_problem()
    weight = np.random.default_rng(2).gamma(1.0, 2.0, first.shape)
    penalties = (
        (FixedWeights(jnp.asarray(weight, jnp.float32)), lambda x, k: 0.5 * weight[k] @ x**2),
        (LaplacePenalty(jnp.float32(0.5)), lambda x, k: np.sqrt(x**2 + WIDTH**2).sum() / 0.5),
    )
    for penalty, cost in penalties:
        found = newton(
            jnp.asarray(first, jnp.float32), jnp.asarray(counts, jnp.float32), jnp.asarray(rest), penalty, 300
        )
        for k in range(2):

            def objective(x, k=k, cost=cost):
                return cost(x, k) - counts[k] @ log_softmax(rest + x)

            best = minimize(objective, np.asarray(found.deviation[k], float), method="L-BFGS-B", tol=1e-12)
            start = minimize(objective, first[k], method="Powell", tol=1e-10, options={"maxiter": 100_000})
            assert objective(np.asarray(found.deviation[k], float)) < min(best.fun, start.fun) + 1e-3


def test_what_a_step_adds_to_the_log_prior():
    """Differences of the priors' own logarithms, and slopes that the weights stand for: -d log p / dx = weight x."""
    x, step = np.array([0.7, -2.0, 0.3, 1.5]), np.array([0.4, 0.5, -0.9, -3.0])
    at, by = jnp.asarray(x, jnp.float32), jnp.asarray(step, jnp.float32)
    laws = (
        (LaplacePenalty(jnp.float32(0.4)), lambda x: -abs(x) / 0.4, -np.log(0.8)),
        (JeffreysPenalty(), lambda x: -np.log(abs(x)), 0.0),
        (NormalPenalty(0.6), lambda x: -(x**2) / 1.2, 0.0),
    )
    for penalty, log_prior, at_zero in laws:
        np.testing.assert_allclose(penalty.log_prior(at, by), log_prior(x + step) - log_prior(x), rtol=1e-3)
        slope = (log_prior(x + 1e-5) - log_prior(x - 1e-5)) / 2e-5
        np.testing.assert_allclose(-penalty.weight(at) * x, slope, rtol=1e-3)
        np.testing.assert_allclose(penalty.at_zero, at_zero, rtol=1e-5)
    assert np.isfinite(JeffreysPenalty().weight(jnp.zeros(2))).all()


def test_one_penalty_is_never_taken_for_another():
    """Compiled code is found again by the structure of its arguments: two penalties of one number must differ in it."""
    at = jnp.float32(0.5)
    penalties = LaplacePenalty(at), NormalPenalty(at), FixedWeights(at), JeffreysPenalty()
    structures = [jax.tree.structure(penalty) for penalty in penalties]
    assert all((a == b) == (i == j) for i, a in enumerate(structures) for j, b in enumerate(structures))


def test_steps_end_when_they_gain_too_little_or_are_enough():
    counts, rest, first = small_problem()
    parts = [jnp.asarray(part, jnp.float32) for part in (first, counts, rest)]
    assert newton(*parts, NormalPenalty(1.0), 3, 0.0).steps == 3
    lazy = newton(*parts, NormalPenalty(1.0), 50, 1e3)
    assert lazy.steps == 1 and not lazy.moving.any()
    found = newton(*parts, NormalPenalty(1.0), 50, 1e-6)
    assert found.steps < 20
    beta = softmax(rest + np.asarray(found.deviation, float), axis=1)
    np.testing.assert_allclose(counts - counts.sum(1, keepdims=True) * beta, found.deviation, atol=0.02)


def test_classes_that_are_known_have_the_likelihood_of_their_counts():
    """naive Bayes with additive components: counts by class, the words' and the prior's part of the bound, and slopes."""
    model = EMModel(read(sage_nb, CORPUS[:30], Y[:30], {**GIVEN, **LAPLACE}), Settings())
    counts = np.stack([CORPUS.counts[:30].toarray()[Y[:30] == k].sum(0) for k in range(3)])
    np.testing.assert_allclose(model.classes.counts, counts)
    assert model.classes.bags.start_variance == 10 and not model.afresh
    state = model.start(np.random.default_rng(0))
    for _ in range(10):  # the way to 0 is long
        state = model.m_step(state, False)
    state = model.e_step(state, False)
    deviation = np.asarray(state.classes["deviation"], float)
    log_beta = log_softmax(COMMON + deviation, axis=1)
    words = (counts * log_beta).sum()
    np.testing.assert_allclose(state.local.bound.sum(), words, rtol=1e-6)
    prior = -np.abs(deviation).sum() / 0.5 - deviation.size * np.log(2 * 0.5)
    shares = gammaln(3) - gammaln(33) + 3 * gammaln(11)  # log p(y), the shares of classes summed out
    np.testing.assert_allclose(model.bound(state), words + prior + shares, rtol=1e-4)
    slope = counts - counts.sum(1, keepdims=True) * np.exp(log_beta)
    away = np.abs(deviation) > 0.1
    np.testing.assert_allclose(slope[away], np.sign(deviation[away]) / 0.5, atol=0.1)
    assert (np.abs(slope[~away]) < 2.1).all() and 10 < away.sum() < 170
    assert set(model.q(state)) == {"deviation", "share"}
    np.testing.assert_allclose(model.q(state)["share"].concentration, [11, 11, 11], rtol=1e-5)


@pytest.mark.parametrize("deviation", [0.01, 0.7, -3.0])
def test_the_weight_is_the_expected_precision_of_a_deviation(deviation):
    """E[1/tau | deviation] by integration: tau exponential with mean 2 scale^2, and p(tau) = 1 / tau."""
    scale = 0.4
    priors = (
        (LaplacePenalty(jnp.float32(scale)), lambda tau: -tau / (2 * scale**2)),
        (JeffreysPenalty(), lambda tau: -np.log(tau)),
    )
    for penalty, log_prior in priors:

        def moment(power, log_prior=log_prior):
            def integrand(log_tau):
                tau = np.exp(log_tau)
                return np.exp((power + 1) * log_tau + norm.logpdf(deviation, 0, np.sqrt(tau)) + log_prior(tau))

            return quad(integrand, -25, 25, limit=500, points=[2 * np.log(abs(deviation))])[0]

        np.testing.assert_allclose(penalty.weight(jnp.float32(deviation)), moment(-1) / moment(0), rtol=2e-3)


@pytest.mark.parametrize("penalty", [JeffreysPenalty(), LaplacePenalty(jnp.float32(0.3))], ids=["jeffreys", "laplace"])
def test_the_objective_never_falls(penalty):
    """From far away, where whole steps overshoot, in float64 on the side."""
    counts, rest, deviation = small_problem()
    counts[0] *= 1000
    counts[1, :3] = 0
    deviation *= 4

    def objective(deviation):
        prior = np.asarray(penalty.log_prior(jnp.zeros(deviation.shape), jnp.asarray(deviation)), float)
        return (counts * log_softmax(rest + deviation, axis=1) + prior).sum(1)

    values = [objective(deviation)]
    for _ in range(40):
        parts = (jnp.asarray(part, jnp.float32) for part in (deviation, counts, rest))
        deviation = np.asarray(newton(*parts, penalty, 1).deviation, float)
        values.append(objective(deviation))
    assert (np.diff(values, axis=0) > -1e-6 * np.abs(values[0])).all()
    assert (values[-1] > values[0] + 1).all()


@pytest.mark.parametrize("prior", ["jeffreys", pytest.param("laplace", marks=pytest.mark.slow)])
def test_planted_deviations_are_found_and_classes_predicted(prior):
    fit = inference.vem(sage_nb, CORPUS[:90], NAMES[Y[:90]], **GIVEN, prior=prior, scale=0.2, **QUIET)
    found = fit.means["deviation"][0]
    np.testing.assert_allclose(found[DEVIATION > 0], 2.0, atol=0.5)
    assert np.mean(np.abs(found[DEVIATION == 0]) < 1e-3) > 0.7
    assert share_of_zeros(found) == np.mean(np.abs(found) < 1e-3)
    assert (np.diff(fit.info["bound"]) > -1e-6 * abs(fit.info["bound"][-1])).all() and fit.info["converged"]
    told = fit.predict(CORPUS[90:], rule="plug-in", calibrate=False)
    assert np.mean(told.label == NAMES[Y[90:]]) > 0.95
    # Bayes' rule, classes with equal shares of the documents
    log_beta = log_softmax(GIVEN["background"] + found, axis=1)
    np.testing.assert_allclose(told.probabilities, softmax(CORPUS[90:].counts @ log_beta.T, axis=1), atol=1e-3)
    assert fit.graph.dims["deviation"] == ("label", "term")


@pytest.mark.slow
@pytest.mark.parametrize("prior", longest_but(["jeffreys", "laplace"], "laplace"))
def test_without_labels_it_is_a_mixture(prior):
    fit = inference.vem(sage_nb, CORPUS, **GIVEN, prior=prior, scale=0.2, seed=1, **QUIET)
    drawn = fit.draws["y"][0, -1]
    pairs = np.stack([np.bincount(drawn[Y == k], minlength=3) for k in range(3)])
    assert pairs.max(1).sum() > 0.9 * len(Y) and len(set(pairs.argmax(1))) == 3
    assert (np.diff(fit.info["bound"]) > -1e-6 * abs(fit.info["bound"][-1])).all()
    assert 0.5 < share_of_zeros(fit.means["deviation"][0]) < 1


@pytest.mark.slow
@pytest.mark.parametrize("prior", longest_but(["jeffreys", "laplace"], "laplace"))
def test_documents_without_a_label_tell_more_of_the_words_of_labels(prior):
    some = np.where(np.arange(len(Y)) < 6, NAMES[Y], None)
    story = {**GIVEN, "prior": prior, "scale": 0.2, **QUIET}
    fit = inference.vem(sage_nb, CORPUS[:90], some[:90], **story)
    alone = inference.vem(sage_nb, CORPUS[:6], NAMES[Y[:6]], **story)
    errors = [np.abs(found.means["deviation"][0] - DEVIATION)[DEVIATION > 0].mean() for found in (fit, alone)]
    assert errors[0] < 0.2 < 0.3 < errors[1]
    assert np.mean(fit.predict(CORPUS[90:]).label == NAMES[Y[90:]]) > 0.95
    assert "y" not in fit.sites and np.isnan(fit.y[6:]).all() and fit.info["converged"]
    assert (np.diff(fit.info["bound"]) > -1e-6 * abs(fit.info["bound"][-1])).all()


def test_a_label_that_is_known_stays_and_others_follow_from_bayes_rule():
    codes = np.where(np.arange(len(Y)) < 6, (Y + 1) % 3, np.nan)  # wrong on purpose
    model = EMModel(read(sage_nb, CORPUS, codes, {**GIVEN, **LAPLACE}, latent_classes=True), Settings())
    state = model.e_step(model.start(np.random.default_rng(0)), fresh=True)
    np.testing.assert_allclose(state.local.shares[:, :6], np.eye(3)[:, codes[:6].astype(int)])
    log_beta = log_softmax(COMMON + state.classes["deviation"]["deviation"], axis=1)
    shares = np.asarray(state.classes["share"], float)[:, None]
    joint = log_beta @ CORPUS.counts.T.toarray() + digamma(shares) - digamma(shares.sum())
    np.testing.assert_allclose(state.local.shares[:, 6:], softmax(joint[:, 6:], axis=0), atol=1e-4)
    expected = np.concatenate([joint[codes[:6].astype(int), np.arange(6)], logsumexp(joint[:, 6:], axis=0)])
    np.testing.assert_allclose(state.local.bound, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.full(120, np.nan), "y is NaN for every document"),
        (np.where(np.arange(120) < 6, 7.0, np.nan), "y of document '0' is 7.0, outside the support"),
        (np.where(np.arange(120) < 6, 0.5, np.nan), "y of document '0' is 0.5, outside the support"),
    ],
)
def test_wrong_labels_among_missing_ones_are_named(y, words):
    with pytest.raises(ValueError, match=words):
        inference.vem(sage_nb, CORPUS, y, **GIVEN, **QUIET)


@pytest.mark.slow
def test_topics_fold_in_and_show_probabilities(tmp_path):
    fit = inference.vem(sage_topics, CORPUS[:90], background=GIVEN["background"], num_topics=3, **QUIET)
    assert (np.diff(fit.info["bound"]) > -1e-6 * abs(fit.info["bound"][-1])).all()
    deviation = fit.means["deviation"][0]
    assert fit.graph.dims["deviation"] == ("topic", "term") and not fit.coefficients
    assert 0.5 < share_of_zeros(deviation) < 1
    beta = softmax(GIVEN["background"] + deviation, axis=1)
    table = fit.topics(4, by="probability")
    leading = np.sort(beta, axis=1)[:, ::-1][:, :4]
    np.testing.assert_allclose(table["probability"].to_numpy().reshape(3, 4), leading, rtol=1e-4)
    theta = fit.transform(CORPUS[90:])
    assert len(set(theta.argmax(1)[:3])) == 3 and np.mean(theta.argmax(1)[3:] == theta.argmax(1)[:-3]) > 0.9
    assert diagnostics.perplexity(fit, CORPUS[90:]).perplexity < 55  # of 60 terms, under the background alone 57
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_allclose(
        inference.load(tmp_path / "fit.nc").topics(4, by="probability")["probability"], table["probability"]
    )


def corner(counts, y, **arguments):
    corpus = Corpus.from_counts(np.asarray(counts))
    given = {"background": background(corpus), "outputs": int(max(y)) + 1, **arguments}
    return inference.vem(sage_nb, corpus, np.asarray(y, float), **given, **QUIET), corpus


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [pytest.param({"prior": "jeffreys"}, marks=pytest.mark.longest), LAPLACE, {"prior": "laplace", "scale": 1e-6}],
)
def test_corners_stay_finite_and_no_word_vetoes_a_class(arguments):
    """A term absent from a class, one absent from all, and a class of one document of one word."""
    counts = [[400, 300, 0, 9, 0], [410, 290, 0, 8, 0], [10, 700, 50, 0, 0], [0, 1, 0, 0, 0]]
    fit, corpus = corner(counts, [0, 0, 1, 2], **arguments)
    found = fit.means["deviation"][0]
    assert np.isfinite(found).all() and np.isfinite(fit.info["bound"]).all()
    one_word = fit.predict(Corpus.from_counts(np.eye(5, dtype=int), corpus.vocabulary), rule="plug-in").probabilities
    assert np.isfinite(one_word).all() and (one_word > 1e-4).all()
    if arguments.get("scale") == 1e-6:
        assert share_of_zeros(found) == 1
        shares = np.broadcast_to([3 / 7, 2 / 7, 2 / 7], (5, 3))  # of the classes, which are all that is left
        np.testing.assert_allclose(one_word, shares, atol=0.01)


@pytest.mark.longest
def test_a_narrow_start_leaves_fewer_deviations():
    zeros = [
        share_of_zeros(inference.vem(sage_nb, CORPUS, Y, **JEFFREYS, start_variance=width, **QUIET).means["deviation"])
        for width in (30.0, 0.1)
    ]
    assert zeros[0] < zeros[1]
    with pytest.raises(ValueError, match="start_variance is 0; give a positive number, or None"):
        inference.vem(sage_nb, CORPUS, Y, **GIVEN, start_variance=0)


@pytest.mark.longest
def test_equal_classes_do_not_deviate():
    fit, _ = corner([[30, 20, 10]] * 6, [0, 1, 0, 1, 0, 1])
    assert share_of_zeros(fit.means["deviation"][0]) == 1


@pytest.mark.longest
def test_nuts_agrees_under_a_laplace_prior():
    """The mode lies where the posterior's mass does: within three deviations of the mean for nearly all terms."""
    rows, terms = np.arange(60), np.arange(0, 60, 4)
    corpus = Corpus.from_counts(CORPUS.counts[rows][:, terms].toarray())
    given = {"background": background(corpus), "outputs": 3, **LAPLACE}
    mode = inference.vem(sage_nb, corpus, Y[rows], **given, **QUIET).means["deviation"][0]
    drawn = inference.nuts(sage_nb, corpus, Y[rows], **given, num_warmup=150, num_samples=150, num_chains=1, **QUIET)
    mean, spread = drawn.draws["deviation"].mean((0, 1)), drawn.draws["deviation"].std((0, 1))
    assert np.mean(np.abs(mode - mean) < 2 * spread) > 0.95
    assert np.corrcoef(mode.ravel(), mean.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("engine", [inference.gibbs, inference.nuts, inference.svi], ids=lambda engine: engine.__name__)
def test_who_draws_refuses_an_improper_prior(engine):
    why = "improper under its prior .*; give it a proper one, e.g. Laplace, or use vem"
    words = f"{engine.__name__} cannot serve the site 'deviation' .* {why}"
    with pytest.raises(ValueError, match=words):
        engine(sage_nb, CORPUS, Y, **JEFFREYS)
    with pytest.raises(ValueError, match="NormalJeffreys is improper and cannot simulate"):
        NormalJeffreys().sample(jax.random.key(0))


def with_response(corpus, y=None, *, num_topics=3):
    """SAGE's topics in the place of supervised LDA's."""
    with numpyro.plate("topics", num_topics):
        deviation = numpyro.sample("deviation", dist.Laplace(0, 0.5).expand([corpus.num_terms]).to_event(1))
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([num_topics]).to_event(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    predictor = draw_words(corpus, theta, jax.nn.softmax(COMMON + deviation)) @ eta
    with documents:
        numpyro.sample("y", dist.Normal(predictor, 0.3), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["response", "uniform"])
def test_additive_topics_go_with_a_response(start):
    fit = inference.vem(with_response, CORPUS[:90], Y[:90] - 1.0, start=start, num_iterations=30, num_draws=1, **QUIET)
    assert (np.diff(fit.info["bound"]) > -1e-6 * abs(fit.info["bound"][-1])).all()
    assert np.corrcoef(fit.predict(CORPUS[90:], rule="plug-in").mean, Y[90:])[0, 1] > 0.9


def story(corpus, *, make, prior=None, num_topics=2):
    prior = dist.Laplace(0, 1.0) if prior is None else prior
    with numpyro.plate("topics", num_topics):
        deviation = numpyro.sample("deviation", prior.expand([corpus.num_terms]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    draw_words(corpus, theta, jax.nn.softmax(make(deviation)))


def test_an_edited_story_is_recognised_by_what_it_computes():
    """A constant added to all terms changes nothing; twice the deviation, or another prior, is another model."""

    def site_of(**arguments):
        return additive_topics(read(story, CORPUS[:30], None, arguments), Settings())

    site = site_of(make=lambda deviation: 7.0 + deviation)
    (facet,) = site.facets
    assert facet.name == "deviation" and facet.owner is None and site.start_variance == 0.3
    np.testing.assert_allclose(site.rest, -np.log(60), rtol=1e-5)
    assert isinstance(facet.penalty, LaplacePenalty) and float(facet.penalty.scale) == 1
    for refused, why in (
        ({"make": lambda deviation: 2 * deviation}, "not a softmax of it plus what is fixed"),
        ({"make": lambda deviation: deviation, "prior": dist.Laplace(1, 1.0)}, "not centred at 0"),
    ):
        with pytest.raises(ValueError, match=f"vem cannot serve the site 'deviation' .*{why}"):
            site_of(**refused)
    assert site_of(make=lambda deviation: deviation, prior=dist.Normal(0, 1.0)) is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"background": np.zeros(7)}, r"background has shape \(7,\) for 60 terms; give models.background"),
        ({"prior": "gauss"}, "prior is 'gauss'; give one of 'jeffreys', 'laplace'"),
        ({"scale": 0}, "scale is 0; give a positive number"),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        inference.vem(sage_nb, CORPUS, Y, **{**GIVEN, **wrong})


def test_the_background_and_the_start():
    corpus = Corpus.from_counts(np.array([[3, 0, 1], [0, 0, 4]]))
    np.testing.assert_allclose(np.exp(background(corpus)), np.array([3.5, 0.5, 5.5]) / 9.5, rtol=1e-5)
    start = first_deviation(jnp.array([[8.0, 2.0, 0.0]]), jnp.log(jnp.array([[0.4, 0.4, 0.2]])), None, 1)
    np.testing.assert_allclose(start, [[np.log(2), 0, 0]], rtol=1e-5)
