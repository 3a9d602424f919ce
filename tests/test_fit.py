"""Fits: what they tell of their draws, and what engines keep of a run, whole, thinned, in part or cut short."""

from __future__ import annotations

import copy
import tracemalloc
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
import xarray as xr
from fits import fit_of
from scipy.special import softmax

from topiczoo import corpora, diagnostics, inference, models
from topiczoo.inference.blocks.conjugate import DirichletBlock
from topiczoo.inference.mcmc import chains
from topiczoo.inference.mcmc import engine as gibbs_engine
from topiczoo.inference.mcmc.chains import Schedule, _refuse_nan, run_chains
from topiczoo.inference.predictive.pointwise import draw_index
from topiczoo.inference.programs import progress
from topiczoo.models import draw_words

RNG = np.random.default_rng(0)
CORPUS = corpora.Corpus.from_counts(RNG.poisson(1.0, (5, 4)) + 1, ["ant", "bee", "cat", "dog"], names=list("pqrst"))
BETA = RNG.dirichlet(np.ones(4), (2, 11, 3)).astype(np.float32)
ETA = np.stack([np.arange(33.0).reshape(11, 3), -np.arange(33.0).reshape(11, 3)]).astype(np.float32)
DRAWS = {"beta": BETA, "eta": ETA, "sigma": np.arange(1, 23, dtype=np.float32).reshape(2, 11)}


def made(**more):
    return fit_of(models.slda, {**DRAWS, **more}, CORPUS, np.arange(5.0), num_topics=3)


def test_posterior_has_named_axes():
    fit = made(theta=RNG.dirichlet(np.ones(3), (2, 11, 5)))
    fit.statistics = {"usage": np.arange(66.0).reshape(2, 11, 3), "lp": DRAWS["sigma"]}
    assert isinstance(fit.posterior, xr.DataTree)
    posterior = fit.posterior["posterior"]
    assert posterior["beta"].dims == ("chain", "draw", "topic", "term")
    assert posterior["theta"].dims == ("chain", "draw", "document", "topic")
    assert posterior["eta"].dims == ("chain", "draw", "topic") and posterior["sigma"].dims == ("chain", "draw")
    assert list(posterior["term"].values) == list(fit.vocabulary) == ["ant", "bee", "cat", "dog"]
    assert list(posterior["document"].values) == list(fit.document_names) == list("pqrst")
    for name, value in fit.draws.items():
        np.testing.assert_array_equal(posterior[name], value)
    assert fit.posterior["sample_stats"]["usage"].dims == ("chain", "draw", "topic")
    np.testing.assert_array_equal(fit.posterior["observed_data"]["y"], np.arange(5.0))
    words = fit.posterior["constant_data"]
    counts = np.zeros((5, 4), int)
    counts[words["word_document"], words["word_term"]] = words["word_count"]
    np.testing.assert_array_equal(counts, CORPUS.counts.toarray())


def test_topics_table():
    fit = made()
    table = fit.topics(3, by="probability", chain=1)
    columns = ["chain", "topic", "rank", "term", "probability", "score", "eta", "eta_low", "eta_high"]
    assert list(table.columns) == columns and len(table) == 9 and (table["chain"] == 1).all()
    for topic in range(3):
        rows, beta = table[table["topic"] == topic], BETA[1, :, topic].mean(0)
        leading = np.argsort(-beta)[:3]
        assert rows["rank"].tolist() == [1, 2, 3] and rows["term"].tolist() == CORPUS.vocabulary[leading].tolist()
        np.testing.assert_allclose(rows["probability"], beta[leading], rtol=1e-6)
        # of -k, -k - 3, ... -k - 30 a twentieth lies below -k - 28.5
        expected = -topic - np.array([15, 28.5, 1.5])
        np.testing.assert_allclose(rows[["eta", "eta_low", "eta_high"]], np.tile(expected, (3, 1)), atol=1e-5)
    assert (fit.topics(3)["chain"] == 0).all() and len(fit.topics(50)) == 12
    arguments = {"num_topics": 3, "response": "softmax", "outputs": 2}
    several = {"beta": BETA, "eta": np.stack([ETA, 2 * ETA], -1)}
    of_classes = fit_of(models.slda_glm, several, CORPUS, ["no", "yes", "no", "yes", "no"], **arguments).topics(1)
    np.testing.assert_allclose(of_classes["eta[yes]"], 2 * ETA[0].mean(0))
    np.testing.assert_allclose(of_classes["eta[no]"], ETA[0].mean(0))


def test_means_over_chains_are_of_what_chains_share():
    fit = made()
    fit.means = {"beta": BETA[:, ::2].mean(1)}  # an engine's own come first
    assert fit.mean("sigma") == 11.5 and fit.mean("sigma", chain=1) == 17
    np.testing.assert_array_equal(fit.mean("beta", chain=1), fit.means["beta"][1])
    np.testing.assert_allclose(fit.mean("eta", chain=1), ETA[1].mean(0))
    with pytest.raises(ValueError, match=r"site is 'beta', and its topics are not the same .* 2 chains; give chain=0"):
        fit.mean("beta")
    aligned = diagnostics.align(fit)
    np.testing.assert_allclose(aligned.mean("beta"), aligned.means["beta"].mean(0))
    with pytest.raises(ValueError, match="chain is 2; the fit's chains are 0 to 1"):
        fit.mean("sigma", chain=2)
    with pytest.raises(KeyError, match="'delta' is no site of this fit; it has beta, eta, sigma"):
        fit.mean("delta")
    assert fit.coefficients == ["eta"] and fit.has_topics and fit.sites == ("beta", "eta", "sigma")
    assert repr(fit) == "Fit of slda by gibbs: 2 chains of 11 draws, sites beta, eta, sigma"


def test_draws_that_are_asked_for_are_spread_over_the_chain():
    fit = made(theta=RNG.dirichlet(np.ones(3), (2, 11, 5)))
    assert set(fit.global_draws()) == {"beta", "eta", "sigma"}  # not of documents
    for most, places in (
        (None, range(11)),
        (11, range(11)),
        (2, [0, 10]),
        (3, [0, 5, 10]),
        (4, [0, 3, 6, 10]),
        (1, [0]),
    ):
        draws = fit.global_draws(most)
        for name in draws:
            np.testing.assert_array_equal(draws[name], DRAWS[name][:, list(places)])
        np.testing.assert_array_equal(draw_index(fit, most or 99), list(places))
    fit.draws.pop("beta")
    fit.snapshots, fit.snapshot_index = {"beta": BETA[:, [1, 4, 7, 10]]}, np.array([1, 4, 7, 10])
    for most, places in ((None, [1, 4, 7, 10]), (2, [1, 10]), (3, [1, 4, 10])):
        draws = fit.global_draws(most)
        np.testing.assert_array_equal(draws["eta"], ETA[:, places])
        np.testing.assert_array_equal(draws["beta"], BETA[:, places])
        np.testing.assert_array_equal(draw_index(fit, most or 99), places)


def test_one_topic_a_document_is_told_by_bayes_rule():
    """Probabilities of topics given all words, averaged over the draws of the first chain."""
    theta = RNG.dirichlet(np.ones(3), (2, 11)).astype(np.float32)
    theta, beta = theta[:, :8], BETA[:, :8]  # more would be thinned out
    fit = fit_of(models.mixture, {"theta": theta, "beta": beta}, CORPUS, num_topics=3)
    logs = np.log(theta[0])[:, None] + np.einsum("dv,skv->sdk", CORPUS.counts.toarray(), np.log(beta[0].astype(float)))
    np.testing.assert_allclose(fit.transform(CORPUS), softmax(logs, -1).mean(0), rtol=1e-4)


def test_deviations_list_only_what_is_raised():
    corpus = corpora.Corpus.from_counts(np.ones((2, 3), int), ["ant", "bee", "cat"])
    raised = np.array([[2.0, 1e-9, 1.0], [0.0, -1.0, 0.0]], np.float32)
    story = {"background": models.background(corpus), "outputs": 2}
    draws = {"deviation": raised[None, None], "share": np.full((1, 1, 2), 0.5, np.float32)}
    fit = fit_of(models.sage_nb, draws, corpus, np.array([0.0, 1.0]), **story)
    table = fit.deviations("deviation")
    assert table["label"].tolist() == [0, 0] and table["term"].tolist() == ["ant", "cat"]


def test_a_component_of_small_deviations_shows_what_it_raises():
    """What is raised is told by the component's own largest deviation, not by that of all."""
    corpus = corpora.Corpus.from_counts(np.ones((2, 3), int), ["ant", "bee", "cat"])
    raised = np.array([[5.0, 1e-4, 1.0], [1e-3, 2e-3, -1.0]], np.float32)
    draws = {"deviation": raised[None, None], "share": np.full((1, 1, 2), 0.5, np.float32)}
    story = {"background": models.background(corpus), "outputs": 2}
    table = fit_of(models.sage_nb, draws, corpus, np.array([0.0, 1.0]), **story).deviations("deviation")
    assert table["label"].tolist() == [0, 0, 1, 1] and table["term"].tolist() == ["ant", "cat", "bee", "ant"]
    np.testing.assert_allclose(table["deviation"], [5.0, 1.0, 2e-3, 1e-3])


def test_foreign_truncated_and_missing_files_are_refused(tmp_path):
    fit = made()
    whole = fit.save(tmp_path / "fit.nc").read_bytes()
    (tmp_path / "truncated.nc").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.nc").write_text("not a fit")
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    for name, words in (
        ("truncated", "truncated"),
        ("text", "truncated or of another kind"),
        ("foreign", "not a topiczoo fit"),
    ):
        with pytest.raises(ValueError, match=words):
            inference.load(tmp_path / f"{name}.nc")
    with pytest.raises(FileNotFoundError, match="no file"):
        inference.load(tmp_path / "nowhere.nc")
    with pytest.raises(FileNotFoundError, match="no existing folder"):
        fit.save(tmp_path / "no" / "fit.nc")


def test_a_story_that_is_not_found_again_must_be_given(tmp_path):
    fit = made()

    def story(corpus, y=None, **rest):
        models.slda(corpus, y, **rest)

    own = copy.copy(fit)
    own.story = replace(fit.story, function=story)
    path = own.save(tmp_path / "own.nc")
    with pytest.raises(ValueError, match=r"pass it: load\(path, story="):
        inference.load(path)
    assert inference.load(path, story=story).story.function is story


RUN = {"num_topics": 2, "num_warmup": 10, "num_samples": 40, "num_chains": 2, "progress_bar": False}


@pytest.fixture
def chunks_of_ten(monkeypatch):
    monkeypatch.setattr(gibbs_engine, "CHUNK_TOKENS", 2000)


@pytest.fixture(scope="module")
def whole():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gibbs_engine, "CHUNK_TOKENS", 2000)
        return inference.gibbs(models.lda, stories.small()[0], **RUN)


def test_a_run_keeps_all_its_draws(whole):
    assert whole.draws["beta"].shape == (2, 40, 2, 9) and whole.draws["theta"].shape == (2, 40, 12, 2)
    assert whole.statistics["lp"].shape == whole.statistics["moved"].shape == (2, 40)
    assert not np.allclose(whole.draws["beta"][0], whole.draws["beta"][1])
    for site in ("beta", "theta"):
        np.testing.assert_allclose(whole.draws[site].sum(-1), 1, rtol=1e-5)
        # means of conditionals, E[beta | z], are as far from means of draws as 40 draws of a share are
        assert np.abs(whole.means[site] - whole.draws[site].mean(1)).max() < 0.25


def test_a_chain_alone_and_thinned_is_the_same_chain(whole, chunks_of_ten):
    thinned = inference.gibbs(models.lda, stories.small()[0], **{**RUN, "num_chains": 1}, thinning=2)
    for site in ("beta", "theta"):
        np.testing.assert_allclose(thinned.draws[site][0], whole.draws[site][0, 1::2], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(thinned.means[site][0], whole.means[site][0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(thinned.statistics["lp"][0], whole.statistics["lp"][0, 1::2], rtol=1e-4)


class Counting:
    """A kernel whose state is the number of draws so far, those of the warm-up with them, and their running sum."""

    alone = True

    def init(self, key, num_warmup, start, data, options):
        return {"draws": jnp.zeros(()), "total": jnp.zeros(())}

    def started(self, start):
        return lambda key, data: {"draws": jnp.zeros(()), "total": jnp.zeros(())}

    def program(self, steps, thinning, unstored, fields, state, data):
        def run(state, data):
            numbers = float(state["draws"]) + np.arange(1, steps + 1)
            kept = numbers[thinning - 1 :: thinning]
            return {"draws": numbers[-1], "total": state["total"] + numbers.sum()}, {"n": kept}, {"twice": 2 * kept}

        return run


@pytest.mark.parametrize("thinning", [1, 2])
def test_large_sites_are_copied_at_the_draws_that_they_are_said_to_be_of(thinning):
    """Means are of the draws after the warm-up, thinned or not."""
    schedule = Schedule(8, 12, thinning, 4, unstored=["big"], snapshot=["big"], statistics={"two": "twice"})
    found = run_chains(
        Counting(), (), seed=0, num_chains=2, schedule=schedule, constrain=lambda state: {"big": np.asarray(state["draws"])},
        reset=lambda state: {**state, "total": 0.0}, means=lambda state: {"big": state["total"]}, progress_bar=False,
    )  # fmt: skip
    assert found.draws["n"].tolist() == [list(range(8 + thinning, 21, thinning))] * 2
    np.testing.assert_array_equal(found.snapshots["big"], found.draws["n"][:, found.snapshot_index])
    assert found.snapshots["big"].tolist() == [[12, 16, 20]] * 2
    np.testing.assert_array_equal(found.statistics["two"], 2 * found.draws["n"])
    np.testing.assert_allclose(found.means["big"], np.arange(9, 21).mean())


@pytest.mark.slow
def test_large_sites_are_kept_as_means_and_some_draws(whole, chunks_of_ten, monkeypatch):
    """Unless they are to be kept: the last draw of every ten, and the same means."""
    monkeypatch.setattr(gibbs_engine, "BUDGET", 100)
    thin = inference.gibbs(models.lda, stories.small()[0], **RUN, keep=["theta"])
    assert set(thin.info["as_means"]) == {"beta"} == set(thin.snapshots) and set(thin.draws) == {"theta"}
    assert thin.snapshot_index.tolist() == [9, 19, 29, 39]
    np.testing.assert_allclose(thin.draws["theta"], whole.draws["theta"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(thin.snapshots["beta"], whole.draws["beta"][:, 9::10], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(thin.means["beta"], whole.means["beta"], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_what_nuts_draws_may_be_large_too(monkeypatch):
    """Sites that no block sums up: a positive one by NUTS, coefficients by an exact draw."""

    def story(corpus, y=None):
        zbar = draw_words(corpus, stories.proportions(corpus, 2), stories.topics(corpus, 2))
        eta = stories.coefficients(2)
        width = numpyro.sample("width", dist.LogNormal(0, 0.3))
        numpyro.sample("y", dist.Normal(zbar @ eta, 1 + width), obs=y)

    corpus, y = stories.small()
    run = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "progress_bar": False}
    whole = inference.gibbs(story, corpus, y, **run)
    assert whole.info["blocks"]["width"].startswith("NUTS") and not whole.info["blocks"]["eta"].startswith("NUTS")
    monkeypatch.setattr(gibbs_engine, "BUDGET", 10)
    thin = inference.gibbs(story, corpus, y, **run)
    assert {"eta", "width"} <= set(thin.info["as_means"]) & set(thin.snapshots) and "eta" not in thin.draws
    for site in ("eta", "width"):
        np.testing.assert_allclose(thin.means[site], whole.draws[site].mean(1), rtol=1e-3)
        np.testing.assert_allclose(thin.snapshots[site], whole.draws[site][:, thin.snapshot_index], rtol=1e-3)


def test_nan_is_refused_by_the_name_of_its_site():
    _refuse_nan({"beta": jnp.ones(3), "z": jnp.arange(3)}, "warmup draw 3")
    with pytest.raises(FloatingPointError, match="'eta' became NaN at sample draw 7; check the scale of y"):
        _refuse_nan({"beta": jnp.ones(3), "eta": (jnp.ones(2), jnp.array([0.0, jnp.nan]))}, "sample draw 7")


@pytest.mark.slow
def test_nan_stops_the_run_with_the_sites_name(monkeypatch):
    right = DirichletBlock.draw

    def broken(self, key, values, data):
        new, means = right(self, key, values, data)
        return {name: value * np.nan for name, value in new.items()}, means

    monkeypatch.setattr(DirichletBlock, "draw", broken)
    corpus, _ = stories.small()
    with pytest.raises(FloatingPointError, match="'beta' became NaN at warmup"):
        inference.gibbs(models.lda, corpus, num_topics=2, num_warmup=4, num_samples=4, progress_bar=False)


@pytest.mark.parametrize(("place", "call"), [("Chains.advance", 3), ("_refuse_nan", 6), ("bar.update", 4)])
def test_an_interrupt_anywhere_keeps_what_was_drawn(whole, chunks_of_ten, monkeypatch, place, call):
    """Chunks of 10, the first of them warm-up. Draws, means and statistics must be of the same chunks."""
    owner, _, name = place.rpartition(".")
    owner = getattr(progress if owner == "bar" else chains, owner) if owner else chains
    right, calls = getattr(owner, name), []

    def interrupted(*arguments):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return right(*arguments)

    monkeypatch.setattr(owner, name, interrupted)
    fit = inference.gibbs(models.lda, stories.small()[0], **RUN)
    draws = fit.draws["beta"].shape[1]
    assert fit.info["interrupted"] and draws == (30 if place == "bar.update" else 10)
    for site in ("beta", "theta"):
        np.testing.assert_allclose(fit.draws[site], whole.draws[site][:, :draws], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(fit.means[site].sum(-1), 1, rtol=1e-4)
    np.testing.assert_allclose(fit.statistics["lp"], whole.statistics["lp"][:, :draws], rtol=1e-4)


def a_response(x):
    from numpyro.distributions import Poisson

    return Poisson(np.e**x)


def test_arguments_of_every_kind_are_saved(tmp_path):
    from test_alignment import made_fit, posterior

    beta, eta, _ = posterior(num_chains=1, num_topics=2)
    fit = made_fit(beta, eta=eta)
    plain = {"response": models.RESPONSES["student_t"], "options": {"df": 3}, "num_topics": 2}
    arguments = {"alpha": np.array([0.1, 0.2]), **plain}
    fit.story = replace(fit.story, function=models.slda_glm, arguments=arguments)
    loaded = inference.load(fit.save(tmp_path / "fit.nc")).story.arguments
    np.testing.assert_array_equal(loaded.pop("alpha"), [0.1, 0.2])
    assert loaded == plain
    fit.story = replace(fit.story, arguments={"response": lambda x: a_response(x)})
    fit.save(tmp_path / "fit.nc")
    with pytest.raises(ValueError, match=r"given as response to the story .* pass it: load\(path, response=...\)"):
        inference.load(tmp_path / "fit.nc")
    assert inference.load(tmp_path / "fit.nc", response=a_response).story.arguments == {"response": a_response}


def test_a_long_term_takes_no_room_from_the_others_on_disk_and_back(tmp_path):
    terms = [*(f"term{i}" for i in range(999)), "x" * 5000]  # 20 MB where all have the width of the longest
    corpus = corpora.Corpus.from_counts(np.ones((2, 1000), int), terms, names=["a", "b"])[[0, 0]]
    fit = fit_of(models.lda, {"beta": np.full((1, 2, 2, 1000), 1e-3, np.float32)}, corpus, num_topics=2)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of names that repeat nothing is said again
        loaded = inference.load(fit.save(tmp_path / "fit.nc")).corpus
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded.vocabulary.tolist() == terms and loaded.names.tolist() == ["a", "a"]
    assert most < 5e6
