"""Topics with names: in tables, in the posterior, in the file, through alignment, and in the report."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from fits import TRAIN, fit_of
from report_fits import simulated

from topiczoo import diagnostics, inference, models
from topiczoo.inference.posterior import file_format, store

RNG = np.random.default_rng(3)
DRAWS = {
    "beta": np.stack([RNG.dirichlet(1 + 400 * row, (1, 8)) for row in np.eye(5)[:3]], 2),
    "eta": RNG.normal(size=(1, 8, 3)) + np.array([-5.0, 0.0, 5.0]),
    "sigma": RNG.uniform(1, 2, (1, 8)),
    "theta": RNG.dirichlet(np.ones(3), (1, 8, 6)),
}


def made():
    return fit_of(models.slda, DRAWS, TRAIN, np.arange(6.0), num_topics=3)


def test_a_renamed_fit_is_another_with_names_in_the_place_of_numbers():
    fit = made()
    fit.posterior  # noqa: B018  # kept from before the names
    named = fit.rename({0: "food", 2: "bills"})
    assert type(named) is inference.Fit and fit.topic_names is None and fit.topics(1)["topic"].tolist() == [0, 1, 2]
    assert named.topics(1)["topic"].tolist() == ["food", "1", "bills"]
    assert named.effects()["topic"].tolist() == ["food", "1", "bills"]
    assert list(named.correlations().index) == list(named.correlations().columns) == ["food", "1", "bills"]
    assert named.documents("bills", 1)["topic"].tolist() == ["bills"] and named.documents(2, 1).equals(
        named.documents("bills", 1)
    )
    assert set(named.select("largest", keep=1).frame()["topic"]) == {"food", "1", "bills"}
    posterior = named.posterior["posterior"]
    assert posterior["topic"].values.tolist() == ["food", "1", "bills"]
    np.testing.assert_array_equal(posterior["eta"].sel(topic="bills"), DRAWS["eta"][..., 2])
    assert fit.posterior["posterior"]["topic"].values.tolist() == [0, 1, 2]
    again = named.rename({"food": "drinks", 1: "place"})
    assert again.topic_names.tolist() == ["drinks", "place", "bills"]
    assert fit.rename(["a", "b", "c"]).topic_names.tolist() == ["a", "b", "c"]


def test_what_is_no_name_is_refused():
    fit = made()
    for names, said in (
        ({3: "x"}, "topic is 3; give a number from 0 to 2"),
        ({"food": "x"}, "topic is 'food'; give a number from 0 to 2"),
        ({True: "x"}, "topic is True; give a number from 0 to 2"),
        ({0: " "}, "names has ' ' for topic 0; give a text."),
        ({0: 5}, "names has 5 for topic 0; give a text."),
        ({0: "2"}, "names makes '2' the name of 2 topics; give each its own."),
        (["a", "b"], "names is .*; give a dict such as {0: 'food'}, or a list of 3 names"),
        ("abc", "names is 'abc'; give a dict"),
    ):
        with pytest.raises(ValueError, match=said):
            fit.rename(names)
    with pytest.raises(ValueError, match=r"or one of the names \['a', 'b', 'c'\]"):
        fit.rename(["a", "b", "c"]).documents("d")


def test_a_name_is_for_all_chains_so_they_must_be_matched():
    """The second chain of this fit has its topics the other way round."""
    fit = simulated(num_topics=3)
    with pytest.raises(ValueError, match=r"not the same in each of the 2 chains.*diagnostics.align\(fit\).rename"):
        fit.rename({0: "food"})
    aligned = diagnostics.align(fit)
    named = aligned.rename({0: "food"})
    assert named.alignment is aligned.alignment and named.topics_are_matched
    terms = [set(named.topics(3, chain=chain).query("topic == 'food'")["term"]) for chain in range(2)]
    assert terms[0] == terms[1]


def test_alignment_keeps_names_with_their_topics():
    """The first topic has few words, so that alignment gives it another number."""
    draws = {**DRAWS, "theta": np.broadcast_to([0.1, 0.3, 0.6], (1, 8, 6, 3)).copy()}
    fit = fit_of(models.slda, draws, TRAIN, np.arange(6.0), num_topics=3).rename(["rare", "some", "most"])
    aligned = diagnostics.align(fit)
    assert aligned.topic_names.tolist() == ["most", "some", "rare"]
    before, after = (each.effects().set_index("topic")["mean"] for each in (fit, aligned))
    np.testing.assert_allclose(after[before.index], before)


def test_names_and_texts_are_saved_with_the_fit(tmp_path):
    fit = made().rename({0: 'Essen & "Trinken" 食'})
    fit.corpus = TRAIN.with_texts([f"text {row}\n" for row in range(6)])
    fit.save(tmp_path / "fit.nc")
    loaded = inference.load(tmp_path / "fit.nc")
    assert loaded.topic_names.tolist() == fit.topic_names.tolist()
    assert loaded.documents(0, 6).equals(fit.documents(0, 6)) and loaded.documents(0, 1)["text"].iloc[0].endswith("\n")
    assert loaded.rename({1: "x"}).topic_names[1] == "x"
    made().save(tmp_path / "plain.nc")
    plain = inference.load(tmp_path / "plain.nc")
    assert plain.topic_names is None and plain.corpus.texts is None


def written(path, fit, version, **changed):
    """The fit's file with another version and other things in its JSON, sealed again."""
    fit.save(path)
    with h5py.File(path) as file:
        state = file_format.read_state(file)
    state = {name: value for name, value in {**state, **changed}.items() if value != "gone"}
    tree = store.to_datatree(fit)
    tree.attrs = {**tree.attrs, "format": store.FORMAT, "version": version}
    path.write_bytes(file_format.packed(tree, json.dumps(state)))
    return path


def test_files_of_version_4_had_no_names_and_load(tmp_path):
    old = written(tmp_path / "old.nc", made(), 4, topic_names="gone", texts="gone")
    loaded = inference.load(old)
    assert loaded.topic_names is None and loaded.corpus.texts is None
    assert loaded.topics(2).equals(made().topics(2))
    with pytest.raises(ValueError, match="topic_names is missing or of another kind"):
        inference.load(written(tmp_path / "new.nc", made(), store.VERSION, topic_names="gone"))


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "b"], ["a", "b", 3]])
def test_names_that_do_not_agree_with_the_topics_are_refused(tmp_path, names):
    with pytest.raises(
        ValueError, match=r"does not agree with itself .*their names are not as many texts, each another"
    ):
        inference.load(written(tmp_path / "fit.nc", made(), store.VERSION, topic_names=names))


@pytest.mark.slow
def test_the_report_and_the_judged_numbers_have_names(tmp_path):
    fit = diagnostics.align(simulated(num_topics=3)).rename({1: "<b>Küche</b>"})
    diagnosis = diagnostics.diagnose(fit)
    assert "eta[<b>Küche</b>]" in diagnosis.numbers.index and "eta[0]" in diagnosis.numbers.index
    text = diagnostics.report(diagnosis, tmp_path / "report.html", progress_bar=False).read_text()
    assert "&lt;b&gt;Küche&lt;/b&gt;" in text and "<b>Küche</b>" not in text


def test_a_story_without_topics_has_none_to_name():
    background = models.background(TRAIN)
    draws = {"deviation": np.zeros((1, 2, 2, 5)), "share": np.full((1, 2, 2), 0.5)}
    fit = fit_of(models.sage_nb, draws, TRAIN, np.array([0, 1, 0, 1, 0, 1.0]), background=background, outputs=2)
    with pytest.raises(ValueError, match="The story 'sage_nb' has no topics to name"):
        fit.rename({0: "x"})
    for ask in (fit.documents, fit.correlations):
        with pytest.raises(ValueError, match="The story 'sage_nb' has no topics; deviations"):
            ask()
    with pytest.raises(ValueError, match="The story 'sage_nb' has no coefficients of topics or covariates"):
        fit.effects()
