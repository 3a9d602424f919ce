"""Fits: prediction, storage, determinism, and what happens when a run goes wrong."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
import stories
import xarray as xr
from test_held_out import fit_of

from topiczoo import corpora, diagnostics, inference, models
from topiczoo.inference import chains
from topiczoo.inference.blocks import DirichletBlock

SETTINGS = {"num_topics": 6, "gamma": 0.05, "num_warmup": 100, "num_samples": 100, "progress_bar": False}


@pytest.fixture(scope="module")
def reviews():
    corpus, stars = corpora.load_reviews(seed=0, num_documents=300)
    y = (stars - stars.mean()) / stars.std()
    y[:20] = np.nan
    return corpus, y


@pytest.fixture(scope="module")
def fit(reviews):
    corpus, y = reviews
    return inference.gibbs(models.slda, corpus[:250], y[:250], num_chains=2, seed=0, **SETTINGS)


def test_posterior_has_named_axes(fit):
    posterior = fit.posterior["posterior"]
    assert posterior["beta"].dims == ("chain", "draw", "topic", "term")
    assert posterior["theta"].dims == ("chain", "draw", "document", "topic")
    assert posterior["eta"].dims == ("chain", "draw", "topic")
    assert list(posterior["term"].values) == list(fit.vocabulary)
    assert isinstance(fit.posterior, xr.DataTree)
    np.testing.assert_allclose(posterior["beta"].sum("term"), 1, rtol=1e-4)


def test_running_means_are_means_of_conditionals(fit):
    """They average E[beta | z] where the draws average beta: the same in the long run."""
    for site in ("beta", "theta"):
        assert fit.means[site].shape == fit.draws[site].shape[:1] + fit.draws[site].shape[2:]
        gap = np.abs(fit.means[site] - fit.draws[site].mean(1))
        assert gap.max() < 0.1 and gap.mean() < 0.01


def test_share_of_words_that_change_their_topic(fit):
    moved = fit.statistics["moved"]
    assert moved.shape == (2, 100) and 0.01 < moved.min() and moved.max() < 0.9


def test_topics_table(fit):
    table = fit.topics(5)
    assert list(table.columns) == ["chain", "topic", "rank", "term", "probability", "eta", "eta_low", "eta_high"]
    assert (table["chain"] == 0).all() and (fit.topics(5, chain=1)["chain"] == 1).all()
    assert len(table) == 30 and (table["eta_low"] <= table["eta"]).all() and (table["eta"] <= table["eta_high"]).all()
    assert (table.groupby("topic")["probability"].diff().dropna() <= 0).all()


def test_means_over_chains_are_of_what_chains_share(fit):
    assert fit.mean("sigma").shape == () and fit.mean("theta", chain=1).shape == (250, 6)
    with pytest.raises(ValueError, match=r"site is 'beta', and its topics are not the same .* 2 chains; give chain=0"):
        fit.mean("beta")
    aligned = diagnostics.align(fit)
    np.testing.assert_allclose(aligned.mean("beta"), aligned.means["beta"].mean(0))
    with pytest.raises(ValueError, match="chain is 2; the fit's chains are 0 to 1"):
        fit.mean("sigma", chain=2)
    with pytest.raises(KeyError, match="'delta' is no site of this fit; it has"):
        fit.mean("delta")


def test_deviations_list_only_what_is_raised():
    corpus = corpora.Corpus.from_counts(np.ones((2, 3), int), ["ant", "bee", "cat"])
    raised = np.array([[2.0, 1e-9, 1.0], [0.0, -1.0, 0.0]], np.float32)
    story = {"background": models.background(corpus), "outputs": 2}
    fit = fit_of(models.sage_nb, {"deviation": raised[None, None]}, corpus, np.array([0.0, 1.0]), **story)
    table = fit.deviations("deviation")
    assert table["label"].tolist() == [0, 0] and table["term"].tolist() == ["ant", "cat"]


def test_prediction_beats_the_mean_and_its_interval_covers(fit, reviews):
    corpus, y = reviews
    prediction = fit.predict(corpus[250:], num_burn=10)
    truth = y[250:]
    r2 = 1 - np.sum((truth - prediction.mean) ** 2) / np.sum((truth - truth.mean()) ** 2)
    assert r2 > 0.5
    low, high = prediction.interval(0.9).T
    covered = np.mean((low < truth) & (truth < high))
    assert 0.75 < covered <= 1  # 50 reviews: 0.90 give or take 3.5 standard errors of 0.042
    assert prediction.draws.shape == (200, 50) and prediction.expected.shape == (2, 50, 50)
    assert list(prediction.frame().columns) == ["mean", "low", "high"]


def test_unknown_words_and_documents_without_known_words(fit):
    new = corpora.Corpus.from_texts(["zebra quagga", "delicious zebra dessert"])
    prediction = fit.predict(new, num_burn=2, most_draws=5)
    assert np.isfinite(prediction.draws).all()
    shares = fit.transform(new, num_burn=2, most_draws=5)
    np.testing.assert_allclose(shares[0], 1 / 6, atol=1e-6)  # nothing known of it: the prior's mean


def test_transform_finds_the_topics_a_document_was_fitted_with(fit, reviews):
    corpus, _ = reviews
    shares = fit.transform(corpus[:250], num_burn=10)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    assert np.mean(np.abs(shares - fit.means["theta"][0]).sum(1)) < 0.4


def test_saved_fit_predicts_the_same(fit, reviews, tmp_path):
    corpus, _ = reviews
    loaded = inference.load(fit.save(tmp_path / "fit.nc"))
    assert loaded.info["blocks"] == fit.info["blocks"] and loaded.story.arguments == fit.story.arguments
    assert list(tmp_path.iterdir()) == [tmp_path / "fit.nc"]
    for site in fit.draws:
        np.testing.assert_array_equal(loaded.draws[site], fit.draws[site])
    first, second = (f.predict(corpus[250:260], most_draws=5, num_burn=2).draws for f in (fit, loaded))
    np.testing.assert_array_equal(first, second)


def test_foreign_truncated_and_missing_files_are_refused(fit, tmp_path):
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


def test_a_story_that_is_not_found_again_must_be_given(fit, tmp_path):
    def story(corpus, y=None, **rest):
        models.slda(corpus, y, **rest)

    own = inference.Fit(
        type(fit.story)(story, fit.story.arguments), corpora.Corpus.from_counts(np.ones((2, len(fit.vocabulary)), int)),
        {"eta": fit.draws["eta"]}, engine="gibbs",
    )  # fmt: skip
    path = own.save(tmp_path / "own.nc")
    with pytest.raises(ValueError, match=r"pass it: load\(path, story="):
        inference.load(path)
    assert inference.load(path, story=story).story.function is story


def test_same_seed_same_draws_however_many_chains(fit, reviews):
    corpus, y = reviews
    alone = inference.gibbs(models.slda, corpus[:250], y[:250], num_chains=1, seed=0, **SETTINGS)
    for site in ("sigma", "eta", "beta"):
        np.testing.assert_allclose(alone.draws[site][0], fit.draws[site][0], rtol=1e-4, atol=1e-6)
    again = inference.gibbs(models.slda, corpus[:250], y[:250], num_chains=1, seed=0, **SETTINGS)
    np.testing.assert_array_equal(alone.draws["sigma"], again.draws["sigma"])


def test_large_sites_are_kept_as_means_and_some_draws(reviews, monkeypatch):
    from topiczoo.inference import gibbs_engine

    corpus, y = reviews
    monkeypatch.setattr(gibbs_engine, "BUDGET", 1_000_000)
    thin = inference.gibbs(models.slda, corpus[:250], y[:250], num_chains=2, seed=0, **SETTINGS)
    assert set(thin.info["as_means"]) == {"beta", "theta"} and set(thin.draws) == {"eta", "sigma"}
    assert thin.snapshots["beta"].shape[:2] == (2, len(thin.snapshot_index)) and thin.snapshot_index[-1] == 99
    assert set(thin.means) == {"beta", "theta"}
    assert np.isfinite(thin.predict(corpus[250:], num_burn=2).draws).all()
    kept = inference.gibbs(models.slda, corpus[:250], y[:250], num_chains=2, seed=0, keep=["beta"], **SETTINGS)
    assert "beta" in kept.draws and "theta" in kept.info["as_means"]


def test_thinning_keeps_every_second_draw(reviews):
    corpus, _ = reviews
    settings = {**SETTINGS, "num_chains": 1, "seed": 1}
    whole = inference.gibbs(models.lda, corpus, **settings)
    thinned = inference.gibbs(models.lda, corpus, thinning=2, **settings)
    np.testing.assert_allclose(thinned.draws["beta"], whole.draws["beta"][:, 1::2], rtol=1e-4, atol=1e-6)


def test_nan_stops_the_run_with_the_sites_name(monkeypatch):
    right = DirichletBlock.draw

    def broken(self, key, values, corpus, y):
        new, means = right(self, key, values, corpus, y)
        return {name: value * np.nan for name, value in new.items()}, means

    monkeypatch.setattr(DirichletBlock, "draw", broken)
    corpus, _ = stories.small()
    with pytest.raises(FloatingPointError, match="'beta' became NaN at warmup"):
        inference.gibbs(models.lda, corpus, num_topics=2, num_warmup=4, num_samples=4, progress_bar=False)


@pytest.mark.parametrize("call", [3, 7])
@pytest.mark.parametrize("place", ["Chains.advance", "_refuse_nan", "Progress", "tqdm.update"])
def test_an_interrupt_anywhere_keeps_what_was_drawn(monkeypatch, place, call):
    """Chunks of 10: call 2 and later are draws. States, means and the count of draws must be of the same chunk."""
    owner, _, name = place.rpartition(".")
    owner = getattr(chains, owner) if owner else chains
    right, calls = getattr(owner, name), []

    def interrupted(*arguments):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return right(*arguments)

    monkeypatch.setattr(owner, name, interrupted)
    monkeypatch.setattr("topiczoo.inference.gibbs_engine.CHUNK_TOKENS", 2000)
    corpus, _ = stories.small()
    fit = inference.gibbs(
        models.lda, corpus, num_topics=2, num_warmup=10, num_samples=80, num_chains=1, progress_bar=False
    )
    draws = fit.draws["beta"].shape[1]
    assert fit.info["interrupted"] and 0 < draws < 80 and draws % 10 == 0
    for site in ("beta", "theta"):
        np.testing.assert_allclose(fit.means[site].sum(-1), 1, rtol=1e-4)
    assert fit.statistics["lp"].shape == (1, draws)


def test_mixture_transforms_to_probabilities_of_topics(reviews):
    corpus, _ = reviews
    fit = inference.gibbs(models.mixture, corpus[:250], num_chains=1, seed=1, **SETTINGS)
    shares = fit.transform(corpus[250:], most_draws=20)
    assert shares.shape == (50, 6)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)


def a_response(x):
    from numpyro.distributions import Poisson

    return Poisson(np.e**x)


def test_arguments_of_every_kind_are_saved(tmp_path):
    from test_alignment import made_fit, posterior

    beta, eta, _ = posterior(num_chains=1, num_topics=2)
    fit = made_fit(beta, eta=eta)
    fit.story.function = models.slda_glm
    fit.story.name = "slda_glm"
    fit.story.arguments = {"alpha": np.array([0.1, 0.2]), "response": models.RESPONSES["poisson"], "options": {"df": 3}}
    loaded = inference.load(fit.save(tmp_path / "fit.nc")).story.arguments
    np.testing.assert_array_equal(loaded.pop("alpha"), [0.1, 0.2])
    assert loaded == {"response": models.RESPONSES["poisson"], "options": {"df": 3}}
    fit.story.arguments = {"response": lambda x: a_response(x)}
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
