"""Every block's conditional against the story's own log-density, on the zoo's stories and on edited ones."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from numpyro.infer import NUTS

from topiczoo import inference, models
from topiczoo.inference.blocks import augmentation, concentrations
from topiczoo.inference.blocks.augmented import AugmentedBlock
from topiczoo.inference.blocks.block import BlockState, few
from topiczoo.inference.blocks.conjugate import DirichletBlock, GaussianBlock, LabelBlock, ScaleBlock
from topiczoo.inference.blocks.topics import CollapsedBlock, TopicBlock
from topiczoo.inference.kernels import sweep
from topiczoo.inference.mcmc import engine as gibbs_engine
from topiczoo.inference.mcmc import plan as plan_of_gibbs
from topiczoo.inference.mcmc import ratio_tests
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.samplers.gig import GeneralizedInverseGaussian
from topiczoo.inference.story.reading import read


def run_check(story, counts=False, **arguments):
    corpus, y = stories.small(counts)
    responses = () if story in (models.lda, models.mixture) else (y,)
    return inference.check(story, corpus, *responses, num_documents=3, num_tokens=4, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "story",
    [stories.random_effect, stories.squared_shares, stories.mean_and_scale, stories.latent_below,
     stories.response_reads_theta, stories.learned_alpha, stories.negative_binomial],
    ids=lambda s: s.__name__,
)  # fmt: skip
def test_every_block_is_the_conditional_of_the_story(story):
    table = run_check(story, counts=story is stories.negative_binomial)
    assert table["passes"].all(), table.to_string()


def test_theta_that_is_no_dirichlet_is_kept_and_drawn_for_all_documents_at_once():
    table = run_check(stories.logistic_normal)
    served = {site: row.block for row in table.itertuples() for site in row.sites.split(", ")}
    assert served == {
        "beta": "Dirichlet draw", "eta": "normal draw", "z": "topic sweep given theta",
        "logits": "Hamiltonian trajectories, all documents at once",
    }  # fmt: skip
    assert table["passes"].all(), table.to_string()


def everything(corpus, y=None):
    """A site for every kind of block beside topics: Dirichlet, normal, auxiliary variables, a scale, and NUTS."""
    beta, eta = stories.topics(corpus, 2), stories.coefficients(2)
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    spread = numpyro.sample("spread", dist.LogNormal(-0.5, 0.4))
    zbar = models.draw_words(corpus, stories.proportions(corpus, 2), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)
        numpyro.sample("again", dist.StudentT(3, slope * corpus.lengths, spread), obs=y)


KINDS = {
    "beta": "Dirichlet draw", "eta": "normal draw", "slope": "normal draw given auxiliary variables",
    "sigma": "generalised inverse Gaussian draw", "z": "topic sweep, theta integrated out",
    "theta": "topic sweep, theta integrated out", "spread": "NUTS given the rest",
}  # fmt: skip


def made_tester(story, *responses, collapse="proportions", **arguments):
    """What ``inference.check`` does, on seven tokens."""
    graph = read(story, stories.tiny()[0], *(responses or (None,)), arguments)
    return ratio_tests._Tester(graph, choose_blocks(graph, collapse=collapse), seed=0)


@pytest.fixture(scope="module")
def tester():
    return made_tester(everything, np.array([1.2, -0.8, np.nan]))


def row_of(tester, site):
    if site in tester.plan.by_nuts:
        return tester.test_nuts()
    return tester.test(next(block for block in tester.plan.blocks if site in block.sites))


def test_every_kind_of_block_is_chosen_and_passes(tester):
    assert tester.plan.describe() == KINDS
    for site in ("beta", "eta", "slope", "sigma", "z", "spread"):
        row = row_of(tester, site)
        assert row["passes"] and row["block"] == KINDS[site] and site in row["sites"], row
        assert row["comparisons"] == {"z": 7, "spread": 1}.get(site, 2)


def wrong_dirichlet(right):
    return lambda *arguments: dist.Dirichlet(right(*arguments).concentration + 0.05)


def wrong_normal(right):
    def shifted(*arguments):
        law, unravel = right(*arguments)
        return dist.MultivariateNormal(law.mean + 0.02, law.covariance_matrix), unravel

    return shifted


def wrong_scale(right):
    def another_order(*arguments):
        law = right(*arguments)
        return GeneralizedInverseGaussian(law.order + 0.05, law.a, law.b)

    return another_order


def wrong_auxiliary(right):
    def more_precise(*arguments):
        linear, precision = right(*arguments)
        return augmentation.Quadratic(linear, 1.05 * precision)

    return more_precise


@pytest.mark.parametrize(
    ("site", "where", "name", "wrong"),
    [
        ("beta", DirichletBlock, "conditional", wrong_dirichlet),
        ("eta", GaussianBlock, "conditional", wrong_normal),
        ("slope", AugmentedBlock, "conditional", wrong_normal),
        ("slope", augmentation.HeavyTail, "quadratic", wrong_auxiliary),
        ("sigma", ScaleBlock, "conditional", wrong_scale),
        ("z", sweep.BatchSweep, "response", lambda right: lambda self, lanes: 1.05 * right(self, lanes)),
        ("z", sweep.BatchSweep, "move", lambda right: lambda self, lanes, topic, step: right(self, lanes, topic, abs(step))),
    ],
)  # fmt: skip
def test_a_wrong_conditional_is_caught(tester, monkeypatch, site, where, name, wrong):
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    assert not row_of(tester, site)["passes"]


@pytest.mark.parametrize("forgotten", ["again", "spread"])
def test_a_density_that_nuts_forgets_is_caught(tester, monkeypatch, forgotten):
    right = plan_of_gibbs._Model.__init__

    def forgetful(self, *arguments):
        right(self, *arguments)
        self.not_needed = {*self.not_needed, forgotten}

    monkeypatch.setattr(plan_of_gibbs._Model, "__init__", forgetful)
    assert not row_of(tester, "spread")["passes"]


def test_nuts_sees_the_densities_that_read_its_sites_and_no_others(tester):
    model = tester.plan.model()
    assert model.not_needed == {"beta", "theta", "eta", "slope", "sigma", "y"} and not model.counted


def test_the_kernel_has_the_blocks_in_order_and_statistics_find_them(tester):
    plan = tester.plan
    kinds = [type(kernel) for kernel, _ in plan.kernel().blocks]
    assert kinds == [DirichletBlock, GaussianBlock, AugmentedBlock, ScaleBlock, NUTS, TopicBlock]
    recorded = {name: f"block_states.5.statistics.{name}" for name in ("lp", "usage", "moved", "proposed")}
    assert plan.statistics == {"diverging": "block_states.4.diverging", **recorded}


def test_one_topic_a_document_passes_and_wrong_weights_are_caught(monkeypatch):
    tester = made_tester(models.mixture, num_topics=3)
    assert row_of(tester, "z")["passes"] and row_of(tester, "z")["block"] == "one topic a document"
    right = LabelBlock.logits
    monkeypatch.setattr(LabelBlock, "logits", lambda *arguments: 1.05 * right(*arguments))
    assert not row_of(tester, "z")["passes"] and row_of(tester, "theta")["passes"]


def test_fully_collapsed_sampler(monkeypatch):
    tester = made_tester(models.slda, stories.tiny()[1], collapse="topics", num_topics=3)
    row = row_of(tester, "z")
    assert row["passes"] and row["block"] == "fully collapsed sampler" and row["sites"] == "z, theta, beta"
    right = CollapsedBlock._token
    monkeypatch.setattr(CollapsedBlock, "_token", lambda *a: lambda *b: 1.05 * right(*a)(*b))
    assert not row_of(tester, "z")["passes"]


def test_forms_that_a_block_does_not_serve_are_refused():
    """A Dirichlet read elsewhere, a normal that enters a scale, a scale of another form, and a shape of its own."""

    def odd(corpus, y=None):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
        level = numpyro.sample("level", dist.Normal(0, 1))
        bent = numpyro.sample("bent", dist.Normal(0, 1))
        shape = numpyro.sample("shape", dist.Gamma(2, 1))
        both = numpyro.sample("both", dist.HalfNormal(1).expand([2]).to_event(1))
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("one", dist.Normal(level + bent**2 + share[0], both.sum()), obs=y)
            numpyro.sample("two", dist.Gamma(shape, 1.0), obs=jnp.abs(y))

    corpus, y = stories.tiny()
    graph = read(odd, corpus, y, {})
    small = few(graph)
    assert not DirichletBlock.recognise(graph, ["share"], small)
    assert GaussianBlock.recognise(graph, ["level"], small)
    assert not GaussianBlock.recognise(graph, ["bent"], small)
    assert not GaussianBlock.recognise(graph, ["level", "bent"], small)
    assert not ScaleBlock.recognise(graph, ["shape"], small) and not ScaleBlock.recognise(graph, ["both"], small)
    assert not LabelBlock.recognise(graph, ["share"], small) and not TopicBlock.records


@pytest.mark.parametrize("story", [stories.centred, stories.total_only], ids=lambda s: s.__name__)
def test_linked_documents_are_refused_by_name(story):
    with pytest.raises(ValueError, match=f"{story.__name__}.*links documents"):
        choose_blocks(read(story, *stories.small(), {}))


def test_a_discrete_latent_nobody_owns_is_refused_by_name():
    with pytest.raises(ValueError, match="Nobody owns the discrete site 'switch'"):
        choose_blocks(read(stories.global_switch, *stories.small(), {}))


def test_theta_is_integrated_out_only_where_words_alone_read_it():
    def story(kind):
        def words(corpus, y=None):
            shape = [] if kind == "one for all" else [corpus.num_documents]
            with numpyro.plate_stack("documents", shape):
                theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(2, 0.5)))
            if kind == "remembered":
                numpyro.deterministic("share", theta[:, 0])
            given = theta[..., ::-1] if kind == "turned" else jnp.broadcast_to(theta, (corpus.num_documents, 2))
            beta = stories.topics(corpus, 2)
            if kind == "in topics":
                beta = beta * theta[0, 0] + (1 - theta[0, 0]) / corpus.num_terms
            models.draw_words(corpus, theta if kind in ("plain", "remembered", "in topics") else given, beta)

        return words

    for kind in ("plain", "one for all", "remembered", "turned", "in topics"):
        graph = read(story(kind), stories.tiny()[0], None, {})
        assert graph.theta_is_integrable() == (kind == "plain"), kind
    graph = read(stories.response_reads_theta, *stories.tiny(), {})
    assert not graph.theta_is_integrable()


@pytest.mark.parametrize("story", [models.lda, stories.learned_alpha], ids=lambda s: s.__name__)
def test_theta_is_drawn_where_its_own_prior_is_unknown(story, monkeypatch):
    """Though nobody stores its draws; unless its prior is drawn given counts, as one of fewer numbers is."""
    monkeypatch.setattr(concentrations, "MOST", 0)
    responses = (None,) if story is models.lda else stories.tiny()[1:]
    plan = choose_blocks(read(story, stories.tiny()[0], *responses, {"num_topics": 2}), draw_theta=False)
    assert plan.blocks[-1].draw_theta == (story is stories.learned_alpha)


class State(NamedTuple):
    """What a composite kernel hands on."""

    block_states: tuple
    z: dict


def test_running_sums_are_read_and_cleared_block_by_block(tester):
    """Beside a kernel of NumPyro's own, which has none."""
    free = {site: jnp.zeros(tester.plan.graph.latent[site].shape) for site in tester.plan.by_nuts}
    state = State((
        BlockState({"a": jnp.array([1.0, 2.0])}, {"a": jnp.array([3.0, 4.0])}, None, {}), (1, 2),
        BlockState({"b": jnp.array(5.0)}, {"b": jnp.array(6.0)}, None, {}),
    ), free)  # fmt: skip
    assert jax.tree.map(np.ndarray.tolist, jax.tree.map(np.asarray, plan_of_gibbs.totals(state))) == {
        "a": [3.0, 4.0],
        "b": 6.0,
    }
    sites = tester.plan.constrain(state)
    assert {name: sites.pop(name).tolist() for name in ("a", "b")} == {"a": [1.0, 2.0], "b": 5.0} and set(sites) == set(
        free
    )
    cleared = plan_of_gibbs.reset_totals(state)
    assert [value.tolist() for value in plan_of_gibbs.totals(cleared).values()] == [[0.0, 0.0], 0.0]
    assert cleared.block_states[0].z is state.block_states[0].z and cleared.block_states[1] == (1, 2)


def test_divergences_are_warned_of_by_chain():
    diverging = np.zeros((3, 100), bool)
    diverging[1, :5] = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gibbs_engine._warn_of_divergences({"diverging": diverging})  # not more than one in twenty
        gibbs_engine._warn_of_divergences({"lp": np.zeros((3, 100))})
    diverging[1, :6] = True
    with pytest.warns(UserWarning, match="6% of the draws of chain 1 diverged"):
        gibbs_engine._warn_of_divergences({"diverging": diverging})


def test_a_check_is_made_on_few_documents_and_few_of_their_words():
    """All documents are there, each with its own terms, no more of one than it has, and the vocabulary stays."""
    corpus, _ = stories.small()
    short = ratio_tests._shortened(corpus, 4)
    np.testing.assert_array_equal(short.lengths, np.minimum(corpus.lengths, 4))
    assert (short.counts.toarray() <= corpus.counts.toarray()).all()
    assert list(short.vocabulary) == list(corpus.vocabulary) and list(short.names) == list(corpus.names)
