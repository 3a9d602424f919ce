"""Every block of Python on README.md and the pages of docs/ is run, and every command of topiczoo or make is one.

Fast: all that costs seconds of compiling is asked whether it would take its arguments, and stands aside: engines give draws
from the prior, and what reads a posterior at length gives something of the right form. So a block that names what is not
there fails. Longest: everything is run, with few draws on few words.

A block that cannot be run says why in the line above it, <!-- not run: ... -->. Pages with a test of their own are not here.
"""

from __future__ import annotations

import inspect
import re
import shlex
from functools import partial, wraps
from pathlib import Path
from unittest.mock import MagicMock

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpyro import handlers

from topiczoo import corpora, diagnostics, inference, models
from topiczoo.command_line import RUNS, main
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.predictive.prediction import Prediction
from topiczoo.inference.story.reading import read
from topiczoo.models.catalogue import as_story

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OWN = {  # where else a page is run
    "docs/topics.md": "test_topics_page.py",
    "docs/estimators.md": "test_estimators.py",
    "docs/weights.md": "test_weights_page.py",
    "docs/lasting.md": "test_lasting.py",
    "docs/em_component.md": "test_contributing_em.py",
    "docs/priors.md": "test_learned_priors_fits.py",
    "docs/streams.md": "test_online.py",
}
BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]*) -->\n)?^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = ("", "python", "sh", "toml", "r", "stan")  # "py" or "Python" would not be found
ENGINES = ("gibbs", "vem", "svi", "nuts")
FEW = {"num_warmup": 4, "num_samples": 8, "num_chains": 2, "num_iterations": 3, "num_steps": 20}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a language that are to be run."""
    return [code for reason, told, code in BLOCK.findall(page.read_text()) if told == language and not reason]


PYTHON = [page for page in PAGES if blocks(page, "python") and name_of(page) not in OWN]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of one's own, with the file that pages name in it."""
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    _, stars, reviews = corpora.load_reviews(num_documents=60, return_aspects=True)
    pd.DataFrame({"id": np.arange(60), "text": reviews["text"], "stars": stars}).to_csv("reviews.csv", index=False)
    yield tmp_path
    plt.close("all")


def short_reviews(seed=0, *, num_documents=1000, return_aspects=False, load=corpora.load_reviews):
    """As many reviews as asked for, of their first fourteen words."""
    _, stars, reviews = load(seed, num_documents=num_documents, return_aspects=True)
    reviews["text"] = [" ".join(text.split()[:14]) for text in reviews["text"]]
    corpus = Corpus.from_texts(reviews["text"], max_features=40, empty="keep", keep_texts=True)
    return (corpus, stars, reviews) if return_aspects else (corpus, stars)


def takes(function, result):
    """The function's signature without its work: arguments that do not fit fail, others give the result."""

    @wraps(function)
    def call(*arguments, **named):
        inspect.signature(function).bind(*arguments, **named)
        return result(*arguments, **named)

    return call


def from_the_prior(engine):
    """An engine that finds nothing out: draws of the story's own prior, two chains of three."""

    def draw(story, corpus, y=None, **named):
        own = {name: value for name, value in named.items() if name not in inspect.signature(engine).parameters}
        story = as_story(story)
        graph, laid = read(story, corpus, y, own), documents(corpus, tokens=True)
        traces = [
            handlers.trace(handlers.seed(story, jax.random.key(number))).get_trace(laid, **own) for number in range(6)
        ]
        drawn = {name: np.stack([trace[name]["value"] for trace in traces]) for name in graph.latent}
        draws = {name: values.reshape(2, 3, *values.shape[1:]) for name, values in drawn.items()}
        quiet = {"diverging": np.zeros((2, 3), bool)}
        return inference.Fit.of(graph, draws, engine="gibbs", statistics=quiet, info={"blocks": {}})

    return takes(engine, draw)


def foretold(fit, corpus, **options):
    draws = np.random.default_rng(0).normal(size=(12, len(corpus)))
    return Prediction(corpus.names, draws.mean(0), draws, draws.reshape(2, 6, -1))


@pytest.fixture
def standing_aside(folder, monkeypatch):
    """What takes long asks for its arguments and no more."""
    monkeypatch.setattr(corpora, "load_reviews", short_reviews)
    for name in ENGINES:
        monkeypatch.setattr(inference, name, from_the_prior(getattr(inference, name)))
    monkeypatch.setattr(inference.Fit, "predict", takes(inference.Fit.predict, foretold))
    shares = takes(inference.Fit.transform, lambda fit, corpus, **_: np.full((len(corpus), 2), 0.5))
    monkeypatch.setattr(inference.Fit, "transform", shares)
    monkeypatch.setattr(inference.Fit, "select", takes(inference.Fit.select, MagicMock()))
    anything = {
        inference: ["check", "compile_sweep", "simulate"],
        diagnostics: [
            "calibrate", "check_words", "compare_topics", "diagnose", "geweke", "perplexity", "plot_predictions", "report",
            "scores", "with_log_likelihood",
        ],
    }  # fmt: skip
    for module, names in anything.items():
        for name in names:
            result = MagicMock(return_value=(MagicMock(), MagicMock())) if name == "simulate" else MagicMock()
            monkeypatch.setattr(module, name, takes(getattr(module, name), result))


@pytest.fixture
def with_few_draws(folder, monkeypatch):
    """Engines take few steps, and checks few simulations."""
    monkeypatch.setattr(corpora, "load_reviews", short_reviews)
    for name in ENGINES:
        engine = getattr(inference, name)
        known = [option for option in FEW if option in inspect.signature(engine).parameters]

        def shortened(*arguments, engine=engine, known=known, **named):
            few = {option: min(named.get(option, FEW[option]), FEW[option]) for option in known}
            return engine(*arguments, **{**named, **few, "progress_bar": False})

        monkeypatch.setattr(inference, name, wraps(engine)(shortened))
    fewer = {"num_simulations": 10, "num_draws": 7, "num_warmup": 2}
    monkeypatch.setattr(diagnostics, "calibrate", partial(diagnostics.calibrate, **fewer))
    monkeypatch.setattr(diagnostics, "geweke", partial(diagnostics.geweke, num_chains=20, num_steps=3))
    compare = diagnostics.compare_topics  # one number and another: each is compiled for
    monkeypatch.setattr(
        diagnostics, "compare_topics", lambda *given, topics, **named: compare(*given, topics=topics[:2], **named)
    )
    monkeypatch.setattr(inference, "compile_sweep", lambda: None)  # it has tests of its own, where there is a compiler


def run(page: Path) -> dict:
    """What a page defines, block after block."""
    names: dict = {"my_story": models.slda}
    for place, code in enumerate(blocks(page, "python")):
        if not code.startswith("def slda("):  # the front page shows a story before its imports
            exec(compile(code, f"{name_of(page)}, block {place + 1}", "exec"), names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON, ids=name_of)
def test_every_block_calls_what_is_there_with_arguments_that_it_takes(standing_aside, page):
    """A wrong name or argument stops it; a page none of whose blocks was found would pass unseen."""
    assert len(run(page)) > 2  # beside my_story and what Python adds


@pytest.mark.longest
@pytest.mark.parametrize("page", PYTHON, ids=name_of)
def test_every_block_runs(with_few_draws, folder, page):
    names = run(page)
    if page.name == "README.md":
        assert (folder / "report.html").exists() and (folder / "fit.nc").exists()
        assert names["prediction"].mean.shape == (200,)


def test_a_name_or_an_argument_that_is_not_there_is_noticed(standing_aside, tmp_path):
    corpus, y = corpora.load_reviews(num_documents=20)
    for wrong in (
        lambda: inference.gibbs(models.slda, corpus, y, num_topic=3),
        lambda: diagnostics.report(inference.gibbs(models.slda, corpus, y, num_topics=2), "report.html", tests=corpus),
        lambda: inference.gibbs(models.slda, corpus, y, num_topics=2).predict(corpus, corpus),
        lambda: diagnostics.plot_topicmap,
    ):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            wrong()


def test_blocks_that_are_not_run_say_why_and_pages_run_elsewhere_are():
    for page in PAGES:
        for reason, language, code in BLOCK.findall(page.read_text()):
            assert language in LANGUAGES or language.startswith("{"), (name_of(page), language)
            assert not reason or (language in ("python", "sh") and len(reason) > 10), (name_of(page), code)
        assert page.read_text().count("<!-- not run") == sum(
            bool(found[0]) for found in BLOCK.findall(page.read_text())
        )
    for page, test in OWN.items():
        assert Path(page).name in (ROOT / "tests" / test).read_text()


def commands() -> list[tuple[str, str]]:
    """Lines of shell on the pages: in blocks of sh, or indented by four."""
    found = []
    for page in PAGES:
        text = page.read_text()
        lines = [line for _, language, code in BLOCK.findall(text) if language == "sh" for line in code.splitlines()]
        lines += re.findall(r"^    ((?:topiczoo|make) .*)$", BLOCK.sub("", text), flags=re.MULTILINE)
        found += [(name_of(page), line) for line in lines if line.split()[:1] in (["topiczoo"], ["make"])]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_every_command_is_understood(tmp_path, monkeypatch, page, line):
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        return
    monkeypatch.chdir(tmp_path)
    for option in re.findall(r"--config (\S+)", line):
        (tmp_path / option).write_text("")
    given = []
    monkeypatch.setitem(RUNS, words[1], lambda options: given.append(options) or 0)
    assert main(words[1:]) == 0 and given


def test_the_front_page_has_the_story_of_the_zoo():
    """Without its table of arguments and its learned priors: the rest is line for line the same."""
    shown = blocks(ROOT / "README.md", "python")[0]
    told = inspect.getsource(models.slda)
    own = [line.split("  #")[0] for line in shown.splitlines() if '"""' not in line]
    assert [line for line in own if line not in told.splitlines()] == []
