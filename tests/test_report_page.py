"""The report's page as a whole: hostile names stay text, nobody is asked for anything, and it is small for many topics."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from fits import fit_of
from report_fits import HOSTILE, hostile, simulated
from report_page import Page, number

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics.checks.response_checks import CLASS, kind
from topiczoo.diagnostics.convergence.diagnosis import diagnose
from topiczoo.diagnostics.reporting.report import report
from topiczoo.inference import Fit
from topiczoo.inference.posterior.leading_terms import leading, term_scores
from topiczoo.inference.predictive.prediction import Prediction
from topiczoo.models import draw_words

TURN = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def as_shown(text):
    """What a page may hold of a text: characters that it may not are replaced."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f]", "\N{REPLACEMENT CHARACTER}", text)


def guessed(fit, corpus, **_):
    """Predictions without folding in: classes in turn, numbers around 0, of as many columns as the response has."""
    number, made = len(corpus), {}
    for name, part in fit.response.parts.items():
        if fit.story.name == "classes":
            shares = np.full((number, 3), 0.15) + 0.55 * np.eye(3)[np.arange(number) % 3]
            draws = np.repeat((np.arange(number) % 3)[None], 20, 0)
            made[name] = Prediction(
                corpus.names, shares @ [0, 1, 2], draws, draws.reshape(2, 10, -1), shares, fit.classes
            )
            continue
        shape = (20, number, *np.shape(part)[1:])
        draws = np.random.default_rng(0).normal(size=shape)
        made[name] = Prediction(corpus.names, draws.mean(0), draws, draws.reshape(2, 10, *shape[1:]))
    return made if len(made) > 1 else next(iter(made.values()))


@pytest.fixture(autouse=True)
def predictions_without_folding_in(monkeypatch):
    monkeypatch.setattr(Fit, "predict", guessed)


def reported(fit, path, **options):
    judged = diagnose(fit, predictions=0)
    return report(judged, path, **{"documents": 10, "progress_bar": False, **options})


def test_hostile_names_stay_text_in_every_table_and_document(tmp_path):
    """Of terms, documents, topics and classes: markup, marks that turn the direction, 500 letters, characters of no page."""
    fit = hostile()
    path = reported(fit, tmp_path / "r.html", documents=30)
    page, text = Page(path), path.read_text(encoding="utf-8")  # a strict reader: all that opens also closes
    assert page.scripts == 1 and "\x0b" not in text and "\x1b" not in text
    shown = [as_shown(term) for term in HOSTILE]
    cells = "\n".join(cell for row in page.tables["topics"] for cell in row)
    assert all(term in cells for term in shown[:3]) and sum(term in cells for term in shown) > 9
    for topic, row in enumerate(page.tables["topics"][1:]):
        assert row[0] == as_shown(fit.topic_names[topic])
    assert all(any(as_shown(name) in row[0] for row in page.tables["numbers"]) for name in fit.topic_names)
    heads = "\n".join(page.tables["topics"][0])
    assert all(f"eta[{as_shown(name)}]" in heads for name in fit.classes)
    assert [document["name"] for document in page.documents] == [as_shown(name) for name in fit.corpus.names]
    for place, document in enumerate(page.documents):
        assert " ".join(document["text"].split()) == " ".join(as_shown(fit.corpus.texts[place]).split())
        assert document["predictions"][0].startswith(f"y: class {as_shown(fit.classes[place % 3])}")
    for wicked in HOSTILE[:3]:
        assert wicked not in text.replace("</script>\n", "")


def test_marks_that_turn_the_direction_turn_nothing_else(tmp_path):
    """A term stands in an element of its own, and attributes, where nothing can end a turn, have no such marks."""
    text = reported(hostile(), tmp_path / "r.html").read_text(encoding="utf-8")
    for attribute in re.findall(r'(?:title|aria-label|alt)="([^"]*)"', text):
        assert not TURN.search(attribute)
    for cell in re.findall(r'<td class="terms"[^>]*>(.*?)</td>', text):
        assert not TURN.search(re.sub(r"<bdi>.*?</bdi>", "", cell))
    assert not TURN.search(re.search(r"<title>(.*?)</title>", text)[1])
    for option in re.findall(r"<option[^>]*>(.*?)</option>", text):
        assert not TURN.search(option) and len(option) < 400


def test_the_page_asks_nobody_for_anything(tmp_path):
    path = reported(simulated(num_documents=12), tmp_path / "r.html")
    page, text = Page(path), path.read_text(encoding="utf-8")
    assert page.sources and all(source.startswith(("#", "data:")) for source in page.sources)
    for asking in ("@import", "fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "import("):
        assert asking not in text, asking
    assert not re.search(r"url\((?!#)", text)  # but for the tips of arrows
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which is never asked for
    assert "default-src 'none'" in text and "img-src data:" in text


def test_the_first_screen_has_verdict_data_and_three_pictures_and_the_plates_are_drawn(tmp_path):
    judged = diagnose(simulated(num_documents=20), predictions=0)
    text = report(judged, tmp_path / "r.html", documents=0, progress_bar=False).read_text(encoding="utf-8")
    top = text[text.index("<main>") : text.index("<nav")]
    first = judged.verdict.split(". ")[0].split(".\n")[0]
    assert f"<p>{first}.</p></div>" in top.replace("..", ".") and top.count("<figure>") == 3
    assert "<dt>documents</dt><dd>20</dd>" in top and "gibbs, 2 chains of 60 draws" in top
    assert all(f'class="{look}' in top for look in ("map", "forest", "chart")) and 'class="plates"' in text
    # as text of the page: pictures take its colours, in the dark too
    assert "<img" not in text and "prefers-color-scheme: dark" in text


def refuse(*arguments, **options):
    raise ValueError("not checked here")


def test_the_slider_has_all_terms_that_lead_at_any_of_its_steps(tmp_path, monkeypatch):
    # frequent terms lead at one end, rare ones at the other, and others in between
    rng = np.random.default_rng(0)
    often = 1 / (5 + np.arange(400))
    beta = often * np.exp(rng.normal(0, 1, (4, 400)))
    beta /= beta.sum(1, keepdims=True)
    corpus = Corpus.from_counts(np.stack([rng.multinomial(400, beta[d % 4]) for d in range(60)]))
    jitter = rng.gamma(400, size=(2, 6, 4, 400))
    draws = {
        "beta": beta * jitter / (beta * jitter).sum(-1, keepdims=True),
        "theta": rng.dirichlet(np.ones(4), (2, 6, 60)),
    }
    fit = fit_of(models.lda, {name: value.astype(np.float32) for name, value in draws.items()}, corpus, num_topics=4)
    monkeypatch.setattr("topiczoo.diagnostics.reporting.topic_section.check_words", refuse)
    path = reported(fit, tmp_path / "r.html", documents=0)
    data, text = Page(path).data["relevance-data"], path.read_text(encoding="utf-8")
    aligned = diagnose(fit, predictions=0).fit
    beta = np.mean([aligned.topic_terms(chain) for chain in range(2)], axis=0)
    share = np.array(data["share"])
    led = set()
    for weight in np.arange(11) / 10:
        expected = leading(term_scores(beta, np.asarray(fit.corpus.counts.sum(0)), "relevance", weight), 10)
        for topic, pairs in enumerate(data["topics"]):
            places, chances = np.array(pairs[::2], int), np.array(pairs[1::2])
            score = weight * np.log(chances) + (1 - weight) * np.log(chances / share[places])
            found = [data["terms"][place] for place in places[np.argsort(-score, kind="stable")[:10]]]
            assert found == list(fit.vocabulary[expected[topic]])
            led.add((topic, tuple(found)))
    assert len(led) > 8  # the steps differ
    # without the script the slider is hidden, and the table has the terms
    assert '<div class="relevance" hidden>' in text and '<p class="filter">' not in text


@pytest.mark.parametrize("num_topics", [1, 2, 80])
def test_one_topic_two_and_many(num_topics, tmp_path):
    fit = simulated(num_topics=num_topics, num_terms=240, num_documents=40)
    path = reported(fit, tmp_path / "r.html")
    page, text = Page(path), path.read_text(encoding="utf-8")
    assert len(page.tables["topics"]) == 1 + num_topics
    assert text.count('class="node"') == (num_topics if num_topics > 1 else 0)
    assert text.count('<option value="') == num_topics and text[: text.index("<nav")].count("<figure>") == 3


@pytest.mark.slow
def test_topics_that_count_are_told_from_some_documents_and_of_too_many_topics_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr("topiczoo.diagnostics.reporting.selection_section.MOST_DOCUMENTS", 20)
    fit = simulated(num_topics=10, num_terms=60, num_documents=30, num_draws=10, num_chains=1)
    path = reported(fit, tmp_path / "ten.html")
    head, *rows = Page(path).tables["selected"]
    text = path.read_text(encoding="utf-8")
    assert (
        "It is told from 20 documents, drawn at random" in text and "Mean squared error on 20 fitted documents" in text
    )
    kept = [row for row in rows if row[head.index("Counts")] == "yes"]
    assert f"{len(kept)} of 10 coefficients of chain 0 are kept" in text and 1 <= len(kept) < 10
    monkeypatch.setattr("topiczoo.diagnostics.reporting.selection_section.MOST_TOPICS", 9)
    path = reported(fit, tmp_path / "many.html")
    assert "selected" not in Page(path).tables and "More than 9 topics are not weighed" in path.read_text()


def test_the_page_is_small_for_many_topics_terms_and_words(tmp_path, monkeypatch):
    """100 topics, 4000 terms, 100 documents with texts of 30 kB each: all documents together have a limit."""
    monkeypatch.setattr("topiczoo.diagnostics.reporting.document_page.MOST_BYTES", 300_000)
    fit = simulated(num_topics=100, num_terms=4000, num_documents=100, num_draws=4, num_chains=1)
    words = np.random.default_rng(0).choice(fit.vocabulary, (100, 4000))
    fit.corpus = fit.corpus.with_texts([" ".join(row) for row in words])
    path = reported(fit, tmp_path / "r.html", documents=100)
    assert path.stat().st_size < 1_200_000
    assert len(Page(path).documents) == 100 and "characters are shown" in path.read_text()


def test_texts_are_shown_where_they_are_kept_and_counted_words_where_not(tmp_path, monkeypatch):
    monkeypatch.setattr("topiczoo.diagnostics.reporting.topic_section.check_words", refuse)
    fit = simulated(models.lda, num_chains=1, num_documents=12)
    bare = reported(fit, tmp_path / "bare.html")
    assert "has kept no texts" in bare.read_text() and not any(d["text"] for d in Page(bare).documents)
    texts = [
        f"Once, {' '.join(fit.vocabulary[row > 0])}! <the end> of {d}"
        for d, row in enumerate(fit.corpus.counts.toarray())
    ]
    fit.corpus = fit.corpus.with_texts(texts)
    page = Page(reported(fit, tmp_path / "texts.html", documents=12))
    assert [document["text"] for document in page.documents] == texts
    terms = [{word for word, *_ in document["words"] if word.startswith("term")} for document in page.documents]
    assert terms == [
        {v for v in fit.vocabulary[row > 0] if v.startswith("term")} for row in fit.corpus.counts.toarray()
    ]


def test_an_optimum_has_points_and_an_approximation_narrow_intervals(tmp_path):
    point = simulated(num_chains=1, num_draws=1, engine="vem", info={"bound": [-9.0, -8.0, -7.9], "converged": True})
    path = reported(point, tmp_path / "vem.html")
    page, text = Page(path), path.read_text(encoding="utf-8")
    assert "eta" in page.tables["topics"][0] and "eta 90%" not in page.tables["topics"][0]
    assert "points, which have no intervals" in text and "vem, one optimum" in text and "traces and R-hat" in text
    guide = simulated(num_chains=1, engine="svi", info={"losses": np.linspace(9, 1, 50)})
    path = reported(guide, tmp_path / "svi.html")
    assert "eta 90%" in Page(path).tables["topics"][0] and "are too narrow" in path.read_text()
    assert "svi, an approximation" in path.read_text()


def test_sizes_of_a_mixtures_components_are_told_from_documents(tmp_path, monkeypatch):
    """A mixture has no proportions of words: sizes are those of the documents that fall to a component."""
    fit = simulated(
        models.mixture, engine="vem", num_chains=1, info={"bound": [-9.0, -8.0], "converged": True}, num_documents=12
    )
    theta = np.random.default_rng(0).dirichlet([3, 2, 1], 12)
    monkeypatch.setattr(Fit, "transform", lambda fit, corpus, seed: theta[[int(r) for r in corpus.source_rows]])
    page = Page(reported(fit, tmp_path / "r.html"))
    head, *rows = page.tables["topics"]
    expected = fit.corpus.lengths @ theta / fit.corpus.num_tokens
    assert [number(row[head.index("Prevalence")]) for row in rows] == pytest.approx(100 * expected, abs=0.06)


def test_several_responses_each_have_their_pictures(tmp_path):
    """Two named responses, one of two columns: three panels of checks, and three predictions of a document."""

    rng = np.random.default_rng(0)
    corpus = Corpus.from_counts(rng.poisson(2.0, (12, 6)) + 1)
    y = {"a": rng.normal(size=12), "b": rng.normal(size=(12, 2))}
    draws = {
        "beta": rng.dirichlet(np.ones(6), (2, 60, 2)), "theta": rng.dirichlet(np.ones(2), (2, 60, 12)),
        "eta": rng.normal(size=(2, 60, 2, 3)),
    }  # fmt: skip
    fit = fit_of(two_responses, {name: value.astype(np.float32) for name, value in draws.items()}, corpus, y)
    page = Page(path := reported(fit, tmp_path / "r.html"))
    assert kind(next(iter(guessed(fit, corpus).values()))) != CLASS
    assert {row[0] for row in page.tables["coverage"][1:]} == {"a", "b[0]", "b[1]"}
    assert [told.split(":")[0] for told in page.documents[0]["predictions"]] == ["a", "b[0]", "b[1]"]
    assert path.read_text().count("Calibration: the line stays inside") == 3


def two_responses(corpus, y=None, *, num_topics=2):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics, 3]).to_event(2))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(num_topics)))
    zbar = draw_words(corpus, theta, beta)
    mean = zbar @ eta
    with documents:
        numpyro.sample("a", dist.Normal(mean[..., 0], 1.0), obs=None if y is None else y["a"])
        numpyro.sample("b", dist.Normal(mean[..., 1:], 1.0).to_event(1), obs=None if y is None else y["b"])
