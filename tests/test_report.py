"""The report's file: what stands in it, what it refuses, and that numbers of topics are the same throughout."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import local_stories
import numpy as np
import pandas as pd
import pytest
from report_fits import NAME, WICKED, classes, simulated
from report_page import Page, number, numbers

from topiczoo import diagnostics, models
from topiczoo.diagnostics.checks.response_checks import check_response, coverage, labelled
from topiczoo.diagnostics.convergence.quantities import Series
from topiczoo.diagnostics.drawing.chains import rank_band, rank_differences
from topiczoo.diagnostics.reporting import topic_section
from topiczoo.diagnostics.reporting.overview import judge
from topiczoo.diagnostics.reporting.report import report, write
from topiczoo.diagnostics.reporting.sections import Sections
from topiczoo.diagnostics.scoring.held_out import HeldOut
from topiczoo.inference import Fit
from topiczoo.inference.predictive.prediction import Prediction

FIRST = "What can be relied on, and why"
GRID = np.linspace(-1, 1, 100)
fold_in = Fit.predict


def by_hand(fit, corpus, **options):
    """A prediction without folding in: draws from -1 to 1 around 1 over the number of the document's first word.

    Of classes: the most probable is that number modulo three, with 0.7.
    """
    if fit.story.name == "shared_theta":
        return fold_in(fit, corpus, **options)
    counts = corpus.with_vocabulary(fit.vocabulary).counts
    first = counts.indices[counts.indptr[:-1]]
    if fit.story.name == "classes":
        shares = np.full((len(corpus), 3), 0.15) + 0.55 * np.eye(3)[first % 3]
        draws = np.repeat((first % 3)[None], 100, 0)
        return Prediction(corpus.names, shares @ [0, 1, 2], draws, draws.reshape(2, 50, -1), shares)
    draws = 1 / (1 + first) + GRID[:, None]
    return Prediction(corpus.names, draws.mean(0), draws, draws.reshape(2, 50, -1))


@pytest.fixture(scope="module", autouse=True)
def predictions_by_hand():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "predict", by_hand)
        yield


@pytest.fixture(scope="module")
def fit():
    return simulated(info={"standardised": [3.0, 2.0]})  # as the command line notes it: y is (data - 3) / 2


@pytest.fixture(scope="module")
def diagnosis(fit):
    return diagnostics.diagnose(fit, predictions=0)


@pytest.fixture(scope="module")
def written(diagnosis, tmp_path_factory):
    return report(diagnosis, tmp_path_factory.mktemp("report") / "report.html", documents=10, progress_bar=False)


def test_one_file_holds_everything(written):
    page, text = Page(written), written.read_text(encoding="utf-8")
    assert page.headings == [
        FIRST, "Data and story", "Topics", "Coefficients", "Convergence", "Predictive checks", "Documents",
        "How to reproduce",
    ]  # fmt: skip
    assert set(page.tables) == {"reliance", "checks", "topics", "numbers", "coverage"}
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    assert "default-src 'none'" in text
    assert "def slda(corpus" in text and "inference.gibbs(\n    models.slda, corpus, y, num_topics=3,\n" in text
    assert "seed=7" in text and "num_chains=2" in text and "num_samples=60" in text
    assert written.stat().st_size < 5e6
    assert written.stat().st_mode & 0o444 == 0o444 & ~current_umask()


def current_umask():
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_text_of_documents_stays_text(written):
    page, text = Page(written), written.read_text(encoding="utf-8")
    assert page.scripts == 1  # the page's own
    for wicked in (*WICKED[:3], NAME):
        assert wicked not in text.replace("</script>\n", "")  # the ends of our own elements
    assert set(WICKED) & {word for document in page.documents for word, *_ in document["words"]}
    assert set(WICKED) & set(page.data["relevance-data"]["terms"])
    assert "<" not in re.search(r'id="relevance-data">(.*?)</script>', text, re.S)[1]


def test_topics_have_the_same_numbers_everywhere(fit, written):
    page = Page(written)
    aligned = diagnostics.align(fit)
    head, *rows = page.tables["topics"]
    posterior = aligned.posterior["posterior"]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    for row in rows:
        topic = int(row[0])
        beta = posterior["beta"].sel(topic=topic).mean(("chain", "draw"))
        leading = [str(term) for term in beta.sortby(beta, ascending=False)["term"].values[:3]]
        assert row[head.index("Leading terms")].startswith(" ".join(leading))
        assert f"topic {topic}: {' '.join(leading)}" in page.outside
        eta = posterior["eta"].sel(topic=topic)
        assert number(row[head.index("eta")]) == pytest.approx(float(eta.mean()), abs=0.006)
        low, high = row[head.index("eta 90%")].split(" to ")
        assert [number(low), number(high)] == pytest.approx(np.quantile(eta, [0.05, 0.95]), abs=0.006)
        (judged,) = [r for r in page.tables["numbers"] if r[0] == f"eta[{topic}]"]
        assert number(judged[2]) == pytest.approx(float(eta.mean()), rel=0.01)
    # the chains number topics in opposite order, so unaligned means would all be near the middle
    assert np.ptp([number(row[head.index("eta")]) for row in rows]) > 2.5
    # and words have the topic they were made from: term v belongs to topic v modulo 3 of the simulation
    of_simulation = {leading_term(aligned, topic) % 3: topic for topic in range(3)}
    place = {term: v for v, term in enumerate(fit.vocabulary)}
    for document in page.documents:
        assert sum(document["shares"].values()) == pytest.approx(100, abs=5)
        if max(document["shares"].values()) > 80:
            continue  # a document of one topic draws stray words to it
        for term, _, topic, percent in document["words"]:
            if percent > 95:
                assert topic == of_simulation[place[term] % 3]


def leading_term(fit, topic):
    return int(fit.draws["beta"][:, :, topic].mean((0, 1)).argmax())


def test_predictions_stand_beside_what_was_observed(fit, written):
    """In the data's own units, which are 3 and twice the fit's."""
    page = Page(written)
    places = {name: row for row, name in enumerate(fit.document_names)}
    assert len(page.documents) == 10
    for document in page.documents:
        ((told,), row) = document["predictions"], places[document["name"]]
        made = by_hand(fit, fit.corpus[[row]])
        low, high = np.quantile(made.draws, [0.05, 0.95])
        expected = [3 + 2 * value for value in (made.mean[0], low, high)]
        shown = numbers(told.replace("90% interval", ""))
        assert shown[:3] == pytest.approx(expected, rel=6e-3)
        if np.isnan(fit.y[row]):
            assert "not observed" in told and len(shown) == 3
        else:
            assert shown[3] == pytest.approx(3 + 2 * fit.y[row], rel=6e-3)
            assert told.endswith("inside" if low <= fit.y[row] <= high else "outside")
        counts = {term: times for term, times, *_ in document["words"]}
        assert counts == {
            term: count
            for term, count in zip(fit.vocabulary, fit.corpus.counts[[row]].toarray()[0], strict=True)
            if count
        }
    # and the share of all labelled documents inside their intervals
    made, told = by_hand(fit, fit.corpus), ~np.isnan(fit.y)
    for row, level in zip(page.tables["coverage"][1:], (0.5, 0.8, 0.9, 0.95), strict=True):
        low, high = np.quantile(made.draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        covered = np.mean(((low <= fit.y) & (fit.y <= high))[told])
        error = np.sqrt(level * (1 - level) / told.sum())
        assert [number(cell) for cell in row[1:4]] == pytest.approx(
            [100 * level, 100 * covered, 100 * error], abs=0.051
        )
        assert row[4] == ("as it should" if abs(covered - level) <= 3 * error else "off")


@pytest.mark.parametrize(
    ("story", "engine", "info"),
    [
        (models.lda, "gibbs", {}),
        (models.mixture, "vem", {"bound": [-9.0, -8.0, -7.9], "converged": True}),
    ],
)
def test_without_a_response(story, engine, info, tmp_path):
    fit = simulated(story, engine=engine, info=info, num_chains=2 if engine == "gibbs" else 1, num_documents=12)
    page = Page(report(fit, tmp_path / "r.html", documents=4, progress_bar=False))
    assert page.headings == [FIRST, "Data and story", "Topics", "Convergence", "Documents", "How to reproduce"]
    assert not any(document["predictions"] for document in page.documents)
    assert ("Word check" in page.tables["topics"][0]) == (story is models.lda)
    if story is models.mixture:  # all words of a document share its topic
        for document in page.documents:
            assert len({topic for _, _, topic, _ in document["words"]}) == 1


@pytest.fixture
def words_unchecked(monkeypatch):
    def refuse(*arguments, **options):
        raise ValueError("not checked here")

    monkeypatch.setattr("topiczoo.diagnostics.reporting.topic_section.check_words", refuse)


def test_one_chain_and_few_draws_say_what_cannot_be_known(tmp_path, words_unchecked):
    fit = simulated(models.lda, num_chains=1, num_draws=10, num_documents=12)
    path = report(fit, tmp_path / "r.html", documents=0, progress_bar=False)
    page, text = Page(path), path.read_text()
    assert "Documents" not in page.headings
    assert (
        "nan" not in " ".join(cell.lower() for table in page.tables.values() for row in table for cell in row).split()
    )
    assert "Take care" in text and "One chain: rank plots compare chains" in text


def test_several_columns_of_coefficients_and_classes(tmp_path):
    fit = simulated(classes, num_draws=20)
    judged = diagnostics.diagnose(fit, predictions=0)
    page = Page(report(judged, tmp_path / "r.html", documents=5, progress_bar=False))
    head, *lines = page.tables["topics"]
    for column in range(3):
        shown = [number(line[head.index(f"eta[{column}]")]) for line in lines]
        np.testing.assert_allclose(shown, judged.fit.draws["eta"][..., column].mean((0, 1)), atol=0.006)
    assert "coverage" not in page.tables  # classes have no intervals
    places = {name: row for row, name in enumerate(fit.document_names)}
    for document in page.documents:
        row = places[document["name"]]
        code = by_hand(fit, fit.corpus[[row]]).code[0]
        told = f"y: class {code} predicted with probability 70%; observed {int(fit.y[row])}"
        assert document["predictions"] == [told]


@pytest.mark.slow
def test_a_story_whose_documents_cannot_be_folded_in(tmp_path):
    fit = simulated(local_stories.shared_theta, num_documents=12)
    path = report(fit, tmp_path / "r.html", documents=3, progress_bar=False)
    page = Page(path)
    assert "No predictions. Documents outside the fit are folded in" in path.read_text()
    assert len(page.documents) == 3  # their proportions are in the posterior
    assert not page.documents[0]["predictions"]


def test_chains_with_other_topics_are_shown_apart(tmp_path, words_unchecked):
    fit = simulated(models.lda, differ=True, num_documents=12)
    text = report(fit, tmp_path / "r.html", documents=2, progress_bar=False).read_text()
    assert "chain 0: " in text and "chain 1: " in text and ">differs 0." in text and 'class="verdict bad"' in text


def test_terms_are_told_from_all_chains_and_traces_from_the_coefficients_that_mix_worst(diagnosis):
    found = Sections(diagnosis, None, None, 5, 0)
    np.testing.assert_allclose(found.beta, diagnosis.fit.draws["beta"].mean((0, 1)), rtol=1e-5)
    assert np.abs(found.beta - diagnosis.fit.draws["beta"][0].mean(0)).max() > 1e-4
    r_hat = [1.2, 1.0, np.nan, 1.5, 1.1, 1.05, 1.3, 1.4, 1.01]
    names = [f"eta[{k}]" for k in range(9)]
    numbers_ = pd.DataFrame({"r_hat": r_hat}, index=names)
    found.diagnosis = replace(diagnosis, numbers=numbers_)
    traced = found._worth_tracing([Series(name, "coefficient", k, np.zeros((2, 5))) for k, name in enumerate(names)])
    assert [one.quantity for one in traced] == [f"eta[{k}]" for k in (3, 7, 6, 0, 4, 5)]


def test_the_map_is_of_all_chains_where_they_have_the_same_topics(diagnosis, monkeypatch):
    monkeypatch.setattr(topic_section, "topic_map", lambda *parts: parts)
    fit = diagnosis.fit
    beta, usage, _, _, columns = topic_section.map_of(Sections(diagnosis, None, None, 5, 0))
    np.testing.assert_allclose(beta, fit.draws["beta"].mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(usage, diagnostics.align(fit).alignment.topics["usage"])
    np.testing.assert_allclose(columns["eta"], fit.draws["eta"].mean((0, 1)), rtol=1e-5)
    assert np.abs(columns["eta"] - fit.draws["eta"][0].mean(0)).max() > 1e-4


def test_verdicts_have_a_colour():
    class Diagnosis:
        def __init__(self, *grades):
            self.reliance = pd.DataFrame({"grade": grades})

    assert judge(Diagnosis("rely", "rely")) == "good"
    assert judge(Diagnosis("rely", "cannot be known")) == "caution"
    assert judge(Diagnosis("with care")) == "caution"
    assert judge(Diagnosis("do not rely", "rely")) == "caution"
    assert judge(Diagnosis("do not rely", "do not rely")) == "bad"


def test_check_response_has_arviz_groups_and_can_fail(fit):
    checked, told = check_response(fit), ~np.isnan(fit.y)
    predicted = checked["posterior_predictive"]["y"]
    assert predicted.sizes == {"chain": 2, "draw": 50, "document": told.sum()}
    made = by_hand(fit, fit.corpus[told])
    np.testing.assert_array_equal(predicted, made.draws.reshape(2, 50, -1))
    np.testing.assert_allclose(checked["observed_data"]["y"], fit.y[told])
    assert predicted["document"].values.tolist() == fit.document_names[told].tolist()
    found = coverage(checked, [0.5, 0.9]).set_index("level")
    for level in (0.5, 0.9):
        low, high = np.quantile(made.draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        assert found.loc[level, "covered"] == np.mean((low <= fit.y[told]) & (fit.y[told] <= high))
        assert found.loc[level, "error"] == pytest.approx(np.sqrt(level * (1 - level) / told.sum()))
    assert 0.1 < found.loc[0.5, "covered"] < 0.9
    with pytest.raises(ValueError, match="corpus and y belong together"):
        check_response(fit, fit.corpus)
    with pytest.raises(ValueError, match="without a response"):
        check_response(simulated(models.lda, num_draws=2, num_documents=4))


def test_documents_are_labelled_that_lack_no_part_of_any_response():
    nan = np.nan
    both = np.array([[1.0, nan], [1.0, 2.0], [nan, nan], [0.0, 0.0]])
    assert labelled(both).tolist() == [1, 3] and labelled(both[:, 0]).tolist() == [0, 1, 3]
    assert labelled({"a": both, "b": [nan, 1.0, 1.0, nan]}).tolist() == [1]


def test_ranks_tell_chains_apart():
    rng = np.random.default_rng(0)
    grid, half = rank_band(2, 200)
    alike, apart = rng.normal(size=(2, 200)), rng.normal(size=(2, 200)) + [[0.0], [1.0]]
    assert (np.abs(rank_differences(alike, grid)) <= half).all()
    assert (np.abs(rank_differences(apart, grid)) > half).any(1).all()
    outside = [(np.abs(rank_differences(rng.normal(size=(2, 200)), grid)) > half).any() for _ in range(300)]
    assert np.mean(outside) < 0.04  # 1% by design; 0.04 is more than four standard errors above


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"fit": "a string"}, TypeError, "fit is a str; give a Fit"),
        ({"path": "nowhere/report.html"}, FileNotFoundError, "in no existing folder"),
        ({"path": "."}, IsADirectoryError, "is a folder; name a file in it"),
        ({"test": [1, 2]}, TypeError, "test is a list"),
        ({"y_test": [1.0]}, ValueError, "y_test was given without test"),
        ({"test": "corpus", "y_test": [1.0]}, ValueError, "y_test has 1 values for 40 documents"),
        ({"documents": 5000}, ValueError, "documents is 5000; give a whole number from 0 to 1000"),
    ],
)
def test_bad_input_is_one_sentence(fit, tmp_path, monkeypatch, options, error, words):
    monkeypatch.chdir(tmp_path)
    if options.get("test") == "corpus":
        options = {**options, "test": fit.corpus}
    with pytest.raises(error, match=words) as raised:
        report(**{"fit": fit, "progress_bar": False, **options})
    assert "\n" not in str(raised.value) and not list(tmp_path.iterdir())


def test_nothing_is_half_written(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("the old one")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write(path, "x" * 1000)
    assert path.read_text() == "the old one" and [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_held_out_documents_take_the_place_of_the_fitted(diagnosis, tmp_path, monkeypatch):
    other = simulated(seed=1)
    test, y = other.corpus[:15], other.y[:15]

    def scores(fit, corpus, told, seed):
        assert fit is diagnosis.fit and corpus is test and seed == 4
        np.testing.assert_array_equal(told, y)
        return pd.DataFrame({"value": [0.25], "error": [0.125], "meaning": ["share"]}, index=["r2"])

    held_out = HeldOut("made", test.names, test.lengths, np.full((1, 2, 15), -80.0))  # 40 words each
    monkeypatch.setattr("topiczoo.diagnostics.reporting.sections.scores", scores)
    monkeypatch.setattr("topiczoo.diagnostics.reporting.sections.perplexity", lambda fit, corpus, seed: held_out)
    theta = np.random.default_rng(0).dirichlet(np.ones(3), 15)
    monkeypatch.setattr(Fit, "transform", lambda fit, corpus, seed: theta)
    given = {"test": test, "y_test": y, "documents": 15, "progress_bar": False, "seed": 4}
    page = Page(report(diagnosis, tmp_path / "a.html", **given))
    scored = {row[0]: [number(cell) for cell in row[1:3]] for row in page.tables["score-table"][1:]}
    assert scored["r2"] == [0.25, 0.12] and scored["perplexity a word"][0] == pytest.approx(np.exp(2), rel=1e-3)
    shown = page.documents
    assert [document["name"] for document in shown] == list(test.names)
    assert [document["shares"] for document in shown] == [
        {k: pytest.approx(100 * row[k], abs=0.51) for k in range(3) if row[k] >= 0.01} for row in theta
    ]
    for place in (3, 7):
        assert numbers(shown[place]["predictions"][0])[-1] == pytest.approx(3 + 2 * y[place], rel=6e-3)
    # without responses the words alone are scored
    words = report(diagnosis, tmp_path / "b.html", test=test, documents=0, progress_bar=False)
    assert [row[0] for row in Page(words).tables["score-table"]] == ["Score", "perplexity a word"]
    assert "came without responses" in words.read_text()


@pytest.mark.slow
def test_a_report_on_held_out_documents_folds_them_in(fit, tmp_path):
    other = simulated(seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "predict", fold_in)
        path = report(fit, tmp_path / "r.html", test=other.corpus[:15], y_test=other.y[:15], progress_bar=False)
    scored = {row[0]: number(row[1]) for row in Page(path).tables["score-table"][1:]}
    assert 1 < scored["perplexity a word"] < 24 and scored["r2"] > 0.5
