"""Variational EM in the parallel order: expectations of any response, its E-step by loops, its M-step where slopes are 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from by_loops import (
    ALPHA,
    CORPUS,
    COUNTS,
    FEW,
    GAMMA,
    UNLABELLED,
    K,
    Y,
    expected_log,
    phi_of,
    slope_of,
    terms_of,
    words_bound,
)
from scipy.special import gammaln, log_softmax, softmax
from scipy.stats import norm

from topiczoo.corpora import Corpus
from topiczoo.inference import vem
from topiczoo.inference.em import engine, responses
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.em.responses import SmoothResponse, solve_newton
from topiczoo.inference.em.starts import coefficients_by_response, topics_by_response
from topiczoo.inference.kernels.sweep import CHUNK
from topiczoo.inference.steps.dirichlet import dirichlet_bound
from topiczoo.inference.steps.responses import (
    coordinate_ascent,
    growth,
    no_less_than_rounding,
    own_curves,
    sums_of,
)
from topiczoo.inference.steps.words import Chunk
from topiczoo.inference.story.reading import read
from topiczoo.models import draw_words, slda, slda_glm

QUIET = {"progress_bar": False}


def bernoulli(corpus, y=None, *, num_topics=2):
    beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics)
    zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Bernoulli(logits=zbar @ eta), obs=y)


def classes(corpus, y=None, *, num_topics=2, outputs=3, alpha=0.5, gamma=0.5):
    beta = stories.topics(corpus, num_topics, gamma)
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([num_topics, outputs]).to_event(2))
    zbar = draw_words(corpus, stories.proportions(corpus, num_topics, jnp.asarray(alpha)), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Categorical(logits=zbar @ eta), obs=y)


def ordered(corpus, y=None, *, num_topics=2):
    beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics, dist.Normal(0, 3))
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(
        dist.Normal(0, 2).expand([2]).to_event(1), dist.transforms.OrderedTransform()
    ))  # fmt: skip
    zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.OrderedLogistic(zbar @ eta, cuts), obs=y)


# three responses, each as a story, its y, and in NumPy E[log p(y | x)] of one document at the moments of its predictor

COUNTED = np.round(np.exp(Y + 0.5))
SIGMA, OUTPUTS = 0.6, 2  # zbar sums to 1: three topics give two predictors a covariance of full rank, and not three


def of_normal(y, mean, covariance):
    return norm.logpdf(y, mean[0], SIGMA) - covariance[0, 0] / (2 * SIGMA**2)


def of_count(y, mean, covariance):
    return y * mean[0] - np.exp(mean[0] + covariance[0, 0] / 2) - gammaln(y + 1)


def of_class(y, mean, covariance):
    """At unscented points: the mean, and sqrt(3) columns of the root away from it, of 2 predictors."""
    jitter = 1e-10 + 1e-5 * np.trace(covariance) / 2  # of the root, for covariances that are not of full rank
    root = np.sqrt(3) * np.linalg.cholesky(covariance + jitter * np.eye(2)).T
    away = [log_softmax(mean + sign * step)[int(y)] for step in root for sign in (1, -1)]
    return log_softmax(mean)[int(y)] / 3 + np.sum(away) / 6


RESPONSES = {
    "normal": (slda, Y, {}, of_normal),
    "count": (slda_glm, COUNTED, {"response": "poisson"}, of_count),
    "class": (classes, (Y > 0).astype(float), {"outputs": OUTPUTS}, of_class),
}


class Case:
    """A response's model after an E-step of seven steps, at coefficients of one's own."""

    def __init__(self, name):
        story, y, arguments, self.expected = RESPONSES[name]
        self.name, self.y = name, np.where(UNLABELLED, np.nan, y)
        given = {"num_topics": K, "alpha": ALPHA, "gamma": GAMMA, **arguments}
        self.model = model = EMModel(read(story, CORPUS, self.y, given), Settings(e_tolerance=0.0, e_iterations=7))
        rng = np.random.default_rng(0)
        self.start = model.start(rng)
        values = {**self.start.response, "eta": jnp.asarray(rng.normal(0, 1.5, model.response.shape), jnp.float32)}
        if "sigma" in values:
            values["sigma"] = jnp.float32(SIGMA)
        topics = self.start.topics * rng.gamma(0.5, 1.0, self.start.topics.shape) + 0.3
        self.state = model.e_step(self.start._replace(response=values, topics=topics), True)
        self.eta = np.asarray(values["eta"], float).reshape(K, -1)
        self.log_beta = expected_log(topics)

    def phi(self, d):
        return phi_of(d, self.state.local.gamma[d], self.log_beta, self.state.local.tilt[d])

    def moments(self, phi, eta):
        """Mean [C] and covariance [C, C] of eta . zbar; for a count twice log E[exp(x)] - E[x], which is exact for it."""
        mean, each = phi.mean(0) @ eta, phi @ eta
        if self.name == "count":
            cumulant = np.log(phi @ np.exp(eta[:, 0] / len(phi))).sum()
            return mean, np.array([[2 * (cumulant - mean[0])]])
        return mean, (np.einsum("nk,kc,ke->ce", phi, eta, eta) - each.T @ each) / len(phi) ** 2

    def objective(self, eta, phi):
        """What the M-step climbs in eta: the expected responses of labelled documents and its prior N(0, 2)."""
        eta = eta.reshape(K, -1)
        terms = [self.expected(self.y[d], *self.moments(phi[d], eta)) for d in np.flatnonzero(~UNLABELLED)]
        return sum(terms) + norm.logpdf(eta, 0, 2).sum()


@pytest.fixture(scope="module", params=RESPONSES)
def case(request):
    return Case(request.param)


@pytest.mark.slow
def test_where_it_starts(case):
    model, start, y = case.model, case.start, case.y
    counts, shares = topics_by_response(CORPUS.counts, y, K)
    assert np.abs(start.topics - counts - 1).max() < 0.6  # noise of a tenth; six deviations, once in 1e8
    grid = np.linspace(-1, 1, K)
    expected = coefficients_by_response(y, shares, OUTPUTS) if case.name == "class" else grid
    np.testing.assert_allclose(start.response["eta"], expected, rtol=1e-5)
    uniform = EMModel(model.graph, Settings(start="uniform")).start(np.random.default_rng(0))
    assert np.abs(uniform.topics - 1).max() < 0.6
    if case.name == "class":  # grids turned against each other
        expected = np.stack([np.roll(grid, 7 * c) for c in range(OUTPUTS)], 1)
    np.testing.assert_allclose(uniform.response["eta"], expected, rtol=1e-5)
    assert model.response.log_linear == (case.name == "count")


def test_an_e_step_with_a_response_is_that_of_loops(case):
    """Sums of phi, moments of the predictor and the bound, at the gamma and the tilt it ended with."""
    local = case.state.local
    for d in FEW:
        phi = case.phi(d)
        np.testing.assert_allclose(local.tokens[d], phi.sum(0), rtol=1e-3, atol=1e-3)
        mean, covariance = case.moments(phi, case.eta)
        np.testing.assert_allclose(local.mean[d], mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(local.covariance[d], covariance, rtol=1e-2, atol=1e-5)
        assert (np.diag(local.covariance[d]) >= 0).all()  # whose root is taken
        bound = words_bound(phi, local.gamma[d], case.log_beta[:, terms_of(d)].T, ALPHA)
        if not UNLABELLED[d]:
            bound += case.expected(case.y[d], mean, covariance)
        np.testing.assert_allclose(local.bound[d], bound, rtol=1e-4, atol=2e-4)
    prior = norm.logpdf(case.eta, 0, 2).sum()
    if case.name == "normal":
        prior += np.log(2) + norm.logpdf(SIGMA)
    whole = np.asarray(local.bound, float).sum() + prior
    whole += dirichlet_bound(np.full(COUNTS.shape[1], GAMMA), case.state.topics).sum()
    np.testing.assert_allclose(case.model.bound(case.state), whole, rtol=1e-6)


def ascended(case, state, steps):
    limits, alpha = (0.0, steps), jnp.broadcast_to(jnp.asarray(ALPHA, jnp.float32), COUNTS.shape[:1] + (K,))
    model = case.model
    local, sums = coordinate_ascent(
        model.response, model.response.data, model.words.pairs, jnp.asarray(case.log_beta.T, jnp.float32), alpha,
        jnp.asarray(case.eta, jnp.float32), state.response, state.local, limits,
    )  # fmt: skip
    return state._replace(local=local, statistics=sums)


def test_the_e_step_ends_where_equation_7_holds(case):
    """tilt_k = c . eta_k + eta_k' E eta_k with c = R_m / N - 2 E m and E = R_v / N^2, and gamma = alpha + sum phi.

    In short documents, where all terms count. Of two words or three it may not be reached: there a word's own share of the
    mean is more than the document's, and the bound would fall.
    """
    local, gaps = ascended(case, case.state, 200).local, []
    for d in np.flatnonzero((COUNTS.sum(1) > 3) & (COUNTS.sum(1) < 14)):
        phi = phi_of(d, local.gamma[d], case.log_beta, local.tilt[d])
        n, (mean, covariance) = len(phi), case.moments(phi, case.eta)
        if UNLABELLED[d]:
            np.testing.assert_allclose(local.tilt[d], 0, atol=1e-5)
            np.testing.assert_allclose(local.gamma[d], ALPHA + phi.sum(0), rtol=0.02, atol=0.03)
            continue
        slope = slope_of(lambda m, d=d, v=covariance: case.expected(case.y[d], m, v), mean)
        curve = np.zeros_like(covariance)
        for i, j in np.ndindex(*curve.shape):
            step = np.zeros_like(curve)
            step[i, j] += 0.5e-6
            step[j, i] += 0.5e-6
            up, down = (case.expected(case.y[d], mean, covariance + sign * step) for sign in (1, -1))
            curve[i, j] = (up - down) / 2e-6
        tilt = case.eta @ (slope - 2 * curve @ mean / n) / n
        tilt += np.einsum("kc,ce,ke->k", case.eta, curve, case.eta) / n**2
        # what is added to all topics alike tilts none
        found, tilt = (part - part.mean() for part in (np.asarray(local.tilt[d], float), tilt))
        gaps.append([np.abs(found - tilt).max(), np.abs(local.gamma[d] - ALPHA - phi.sum(0)).max()])
    assert len(gaps) > 8
    assert (np.median(gaps, axis=0) < [0.015, 0.03]).all()


def test_sums_of_phi_are_those_of_loops(case):
    """Expected counts, and products of phi weighted by R_v / N^2; a count's slope is that of the cumulant, word by word."""
    sums = case.state.statistics
    counts, products, pull = np.zeros((COUNTS.shape[1], K)), np.zeros((K, K)), np.zeros((K, 1))
    for d in range(len(COUNTS)):
        phi = case.phi(d)
        np.add.at(counts, terms_of(d), phi)
        if case.name == "class" or UNLABELLED[d]:
            continue
        mean, covariance = case.moments(phi, case.eta)
        curve = -0.5 / SIGMA**2 if case.name == "normal" else -0.5 * np.exp(mean[0] + covariance[0, 0] / 2)
        products += curve / len(phi) ** 2 * phi.T @ phi
        if case.name == "normal":
            pull += curve / len(phi) ** 2 * phi.T @ (phi @ case.eta)
            continue
        raised = phi * np.exp(case.eta[:, 0] / len(phi))
        raised /= raised.sum(1, keepdims=True)
        pull[:, 0] += curve / len(phi) ** 2 * (phi * case.eta[:, 0] - len(phi) * (raised - phi)).sum(0)
    np.testing.assert_allclose(sums.counts, counts, rtol=1e-3, atol=1e-3)
    if case.name != "class":
        np.testing.assert_allclose(sums.products[0], products, rtol=2e-3, atol=1e-4)
        np.testing.assert_allclose(sums.pull, pull, rtol=2e-3, atol=1e-4)


def test_coefficients_climb_along_the_slope_of_the_bound(case, monkeypatch):
    """phi given. A normal response's coefficients are at the top in one step; others must not fall. Newton's matrix is
    definite, and its step goes up."""
    phi, asked = [case.phi(d) for d in range(len(COUNTS))], []
    monkeypatch.setattr(responses, "solve_newton", lambda *parts: asked.append(parts) or solve_newton(*parts))
    values, ((_, _, mean, covariance),) = case.model.response.move_eta(case.model.words, case.log_beta, case.state)
    (matrix, ascent), eta = asked[0], np.asarray(values["eta"], float)

    def slope(eta):
        return slope_of(lambda eta: case.objective(eta, phi), eta.ravel())

    found = slope(case.eta)
    np.testing.assert_allclose(ascent, found, rtol=0.01, atol=0.003 * abs(found).max())
    assert np.linalg.eigvalsh(matrix).min() > 0
    assert case.objective(eta, phi) > case.objective(case.eta, phi) + 0.5
    for d in FEW:  # and the moments are those of the new coefficients
        expected = case.moments(phi[d], eta.reshape(K, -1))
        np.testing.assert_allclose(mean[d], expected[0], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(covariance[d], expected[1], rtol=1e-2, atol=1e-4)
    if case.name == "normal":
        curve = slope_of(slope, eta, 1e-3)
        np.testing.assert_allclose(matrix, -curve, rtol=0.01, atol=0.01 * abs(curve).max())
        np.testing.assert_allclose(np.linalg.solve(curve, slope(eta)), 0, atol=0.005)


def test_the_m_step_moves_topics_and_the_other_parameters(case):
    moved = case.model.m_step(case.state, True)
    np.testing.assert_allclose(moved.topics, np.asarray(case.state.statistics.counts, float).T + GAMMA, rtol=1e-6)
    q = case.model.q(moved)
    np.testing.assert_array_equal(q["theta"].concentration, case.state.local.gamma)
    np.testing.assert_array_equal(q["eta"].v, moved.response["eta"])
    if case.name != "normal":
        return
    eta, labelled = np.asarray(moved.response["eta"], float)[:, None], np.flatnonzero(~UNLABELLED)
    moments = [case.moments(case.phi(d), eta) for d in labelled]
    squares = sum((Y[d] - m[0]) ** 2 + v[0, 0] for d, (m, v) in zip(labelled, moments, strict=True))

    def slope(sigma):
        return -len(labelled) / sigma + squares / sigma**3 - sigma

    bare = EMModel(case.model.graph, Settings(topics="mle", point="mle"))  # without any prior
    assert bare.bound(case.state) == pytest.approx(float(np.asarray(case.state.local.bound, float).sum()))
    sigma = float(moved.response["sigma"])
    assert slope(0.995 * sigma) > 0 > slope(1.005 * sigma) and q["sigma"].v == moved.response["sigma"]


def test_expectations_of_responses_and_their_slopes(case):
    """R at moments of one's own, R_m, R_v and R_mm; of an unlabelled document all are 0."""
    response, rng, size = case.model.response, np.random.default_rng(4), case.eta.shape[1]
    mean, root = rng.normal(0, 0.7, (len(Y), size)), rng.normal(0, 0.4, (len(Y), size, size))
    covariance = root @ root.swapaxes(1, 2) + 0.1 * np.eye(size)
    arrays = jnp.asarray(mean, jnp.float32), jnp.asarray(covariance, jnp.float32)
    found = jax.jit(response.terms)(case.state.response, *response.data, *arrays)
    slope, curve, bend = jax.jit(response.slopes)(
        case.state.response, *response.data, arrays[0].T, jnp.moveaxis(arrays[1], 0, -1)
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(found)[UNLABELLED], 0)
    for part in (slope, curve, bend):
        np.testing.assert_array_equal(np.asarray(part)[..., UNLABELLED], 0)
    for d in np.flatnonzero(~UNLABELLED)[:8]:
        y, m, v = case.y[d], mean[d], covariance[d]
        np.testing.assert_allclose(found[d], case.expected(y, m, v), rtol=2e-4, atol=2e-4)
        expected = slope_of(lambda m, y=y, v=v: case.expected(y, m, v), m)
        np.testing.assert_allclose(slope[:, d], expected, rtol=2e-3, atol=2e-3)
        rate = np.exp(m[0] + v[0, 0] / 2)
        if case.name == "class":
            p = softmax(m)
            np.testing.assert_allclose(bend[..., d], np.outer(p, p) - np.diag(p), atol=1e-4)
            np.testing.assert_allclose(curve[..., d], np.asarray(curve[..., d]).T)
            turn = np.array([[0.3, 0.1], [0.1, -0.2]])  # a symmetric change of the covariance
            up, down = (case.expected(y, m, v + sign * 1e-4 * turn) for sign in (1, -1))
            np.testing.assert_allclose(
                (np.asarray(curve[..., d]) * turn).sum(), (up - down) / 2e-4, rtol=0.01, atol=1e-3
            )
        else:
            of_normal = -0.5 / SIGMA**2, -1 / SIGMA**2
            twice = of_normal if case.name == "normal" else (-rate / 2, -rate)
            np.testing.assert_allclose([curve[0, 0, d], bend[0, 0, d]], twice, rtol=2e-3)


def test_the_delta_method_is_a_second_order_expansion(case):
    response = SmoothResponse(case.model.graph, Settings(expectation="delta"))
    assert not response.log_linear
    rng, size = np.random.default_rng(5), case.eta.shape[1]
    mean, root = rng.normal(0, 0.7, (len(Y), size)), rng.normal(0, 0.5, (len(Y), size, size))
    covariance = root @ root.swapaxes(1, 2)
    arrays = jnp.asarray(mean, jnp.float32), jnp.asarray(covariance, jnp.float32)
    found = jax.jit(response.terms)(case.state.response, *response.data, *arrays)
    for d in np.flatnonzero(~UNLABELLED):
        y, m, v = case.y[d], mean[d], covariance[d]
        if case.name == "normal":
            expected = of_normal(y, m, v)
        elif case.name == "count":
            expected = y * m[0] - np.exp(m[0]) * (1 + v[0, 0] / 2) - gammaln(y + 1)
        else:
            p = softmax(m)
            expected = np.log(p[int(y)]) + 0.5 * ((np.outer(p, p) - np.diag(p)) * v).sum()
        np.testing.assert_allclose(found[d], expected, rtol=1e-3, atol=1e-3)


# parts


@pytest.mark.parametrize("size", [1, 3])
def test_products_of_phi_are_those_of_the_formula(size):
    rng = np.random.default_rng(0)
    width, topics = 5, 4
    phi = rng.dirichlet(np.ones(topics), (CHUNK, width))
    count, curve = rng.poisson(2, (CHUNK, width)), rng.normal(size=(size, size, width))
    curve, eta = curve + curve.swapaxes(0, 1), rng.normal(size=(topics, size))
    rows = [jnp.asarray(part.reshape(-1, topics), jnp.float32) for part in (phi * count[..., None], phi)]
    curve_, eta_ = jnp.asarray(curve, jnp.float32), jnp.asarray(eta, jnp.float32)
    bend = rng.normal(size=curve.shape)
    own = np.einsum("ccd->cd", curve if size == 1 else bend / 2)
    found = own_curves(curve_, jnp.asarray(bend, jnp.float32))
    np.testing.assert_allclose(found, own, rtol=1e-6)
    products, pull = sums_of(Chunk(*rows, None), curve_, found, eta_)
    np.testing.assert_allclose(products, np.einsum("cd,nd,ndk,ndl->ckl", own, count, phi, phi), rtol=1e-4, atol=1e-4)
    expected = np.einsum("nd,ndk,ced,ndl,le->kc", count, phi, curve, phi, eta)
    np.testing.assert_allclose(pull, expected, rtol=1e-4, atol=1e-4)


def test_small_numbers_keep_their_digits():
    eta, length = np.array([[-3.0], [0.02], [4.0]]), np.array([1.0, 5.0, 200.0])
    share = eta / length
    exact = np.where(abs(share) < 1e-3, share**2 / 2 + share**3 / 6, np.expm1(share) - share)
    found = growth(jnp.asarray(eta, jnp.float32), jnp.asarray(length, jnp.float32))
    np.testing.assert_allclose(found, exact, rtol=2e-5)
    second, outer = np.array([[[1.0, 2.0]]]), np.array([[[1.1, 0.5]]])
    np.testing.assert_allclose(
        no_less_than_rounding(jnp.asarray(second), jnp.asarray(outer))[0, 0], [0, 1.5], rtol=1e-6
    )
    both = np.stack([np.eye(2)] * 3, -1)
    np.testing.assert_allclose(no_less_than_rounding(jnp.asarray(both), jnp.asarray(0.5 * both)), 0.5 * both, atol=1e-5)


def test_newtons_equation_is_solved_where_it_can_be_and_else_nearly():
    matrix, right = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    np.testing.assert_allclose(solve_newton(matrix, right), np.linalg.solve(matrix, right))
    np.testing.assert_allclose(solve_newton(np.ones((2, 2)), np.array([2.0, 2.0])), [1, 1], atol=1e-6)
    indefinite = np.diag([1.0, -2.0])
    np.testing.assert_allclose(solve_newton(indefinite, right), [1, -1])


# whole fits


def learned(story, of_y, **arguments):
    """A fit with every second document unlabelled: E[theta] @ eta of these, and what y was made of."""
    y, hidden = of_y(Y), np.arange(len(Y)) % 2 == 0
    corpus, given = Corpus.from_counts(3 * COUNTS), {"num_topics": K, **arguments}
    fit = vem(story, corpus, np.where(hidden, np.nan, y), num_iterations=25, num_draws=1, **given, **QUIET)
    bound = np.array(fit.info["bound"])
    assert "warning" not in fit.info and (np.diff(bound) >= -1e-6 * np.abs(bound[:-1])).all(), np.diff(bound).min()
    return (fit.means["theta"][0] @ fit.means["eta"][0])[hidden], Y[hidden]


def test_the_bound_never_falls_and_classes_are_learned():
    """The score of one class over the other against what the classes were cut from, of 35 unlabelled documents: a
    correlation of 0.7 comes by chance once in a million times."""
    scores, y = learned(classes, lambda y: (y > 0).astype(float), outputs=OUTPUTS, alpha=ALPHA, gamma=GAMMA)
    assert np.corrcoef(scores[:, 1] - scores[:, 0], y)[0, 1] > 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "of_y"),
    [
        (stories.student_t, lambda y: y),
        (stories.negative_binomial, lambda y: np.round(np.exp(y + 0.5))),
        (bernoulli, lambda y: (y > 0).astype(float)),
        (ordered, lambda y: np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])).astype(float)),
    ],
)
def test_the_bound_never_falls_and_other_responses_are_learned(story, of_y):
    """A correlation of 0.7 over 35 documents comes by chance once in a million times."""
    scores, y = learned(story, of_y)
    assert np.corrcoef(scores, y)[0, 1] > 0.7


def test_what_the_parallel_order_refuses():
    with pytest.raises(ValueError, match="order is 'random'; choose from 'parallel', 'sequential'"):
        vem(slda, CORPUS, Y, num_topics=K, order="random")
    with pytest.raises(ValueError, match="site 'rate' of the story 'latent_below': it is latent and depends on zbar"):
        engine.vem(stories.latent_below, *stories.small())  # which asks no other engine
