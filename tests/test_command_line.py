"""The command line, in process: what it prints, writes and refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import wraps
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fits import fit_of
from report_fits import simulated

from topiczoo import __version__, corpora, diagnostics, inference, models
from topiczoo.command_line import main
from topiczoo.commands.printing import print_topics
from topiczoo.inference.predictive.prediction import Prediction

OWN = """
import jax.numpy as jnp, numpyro, numpyro.distributions as dist
from topiczoo.models import draw_words

def own(corpus, y=None, *, num_topics=3):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.3)))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    _, stars, aspects = corpora.load_reviews(num_documents=60, return_aspects=True)
    pd.DataFrame({"text": aspects["text"], "stars": stars}).to_csv(folder / "reviews.csv", index=False)
    (folder / "own.py").write_text(OWN)
    return folder


def test_models_lists_the_stories(capsys):
    assert main(["models"]) == 0
    printed = capsys.readouterr().out
    assert "slda\n    theta_d ~ Dir(alpha)" in printed and "num_topics=20" in printed and "draw_words" not in printed


def test_the_card_of_a_story(capsys, tmp_path):
    assert main(["models", "--card", "mixture", "--quick"]) == 0
    card = capsys.readouterr().out
    assert card.startswith("# Mixture of categoricals: `mixture`\n\n```text\ntheta ~ Dir(alpha)\nbeta_k ~ Dir(gamma)\n")
    assert "* `z` given `theta`" in card and "| `beta` | Dirichlet | topic, term | words of a topic |" in card
    assert "| `z` | one topic a document | summed out | summed out | EM |" in card
    assert "| `beta` | Dirichlet draw | trajectory | its own guide | EM |" in card
    assert "* `gibbs`: passes\n" in card and "* `vem`: not published" in card and "Rasmussen" in card
    assert "## Cost" not in card and "<svg" not in card
    assert main(["models", "--quick"]) == 2
    assert "name its story" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["check", "slds"],
            "'slds' is no story of the zoo; there are ctm, disclda, dmr, dp_mixture, dtm, hdp, htmm, keyatm, labelled_lda,",
        ),
        (["check", "nowhere.py:story"], "'nowhere.py' is no file"),
        (["fit", "slda", "{folder}/none.csv", "out.nc"], "none.csv"),
        (["fit", "slda", "{folder}/reviews.csv", "out.nc", "--y", "rating"], "rating"),
        (["fit", "lda", "{folder}/reviews.csv", "out.nc", "--set", "num_topics"], "has no '='"),
        (
            ["fit", "lda", "{folder}/none.csv", "out.nc", "--set", "topics=3"],
            "'topics' is no argument of the story, which",
        ),
        (["fit", "lda", "{folder}/none.csv", "out.nc", "--set", "num_steps=3"], "the engine, which takes num_warmup,"),
        (["fit", "lda", "{folder}/none.csv", "out.nc", "--set", "seed=3"], "an option of its own; write --seed 3."),
        (["fit", "slda", "{folder}/none.csv", "out.nc", "--set", "y=stars"], "an option of its own; write --y stars."),
        (["fit", "slda", "{folder}/none.csv", "out.nc", "--standardise"], "--standardise is of use with --y only"),
        (["fit", "{folder}/reviews.csv:own", "{folder}/none.csv", "out.nc"], "does not end in .py"),
        (["fit", "{folder}/broken.py:own", "{folder}/none.csv", "out.nc"], "is no Python in line 2"),
        (["predict", "{folder}/own.py", "{folder}/reviews.csv", "out.csv"], "cannot be read as netCDF"),
        (
            ["predict", "{folder}/none.nc", "{folder}/reviews.csv", "out.csv", "--interval", "90"],
            "--interval is 90.0; give",
        ),
        (
            ["predict", "{folder}/none.nc", "{folder}/reviews.csv", "out.csv", "--interval", "0"],
            "is 0.0; give a number",
        ),
        (
            ["predict", "{folder}/none.nc", "{folder}/reviews.csv", "out.csv", "--interval", "1"],
            "is 1.0; give a number",
        ),
        (["demo", "--out", "{folder}/demo.html"], "where the report goes"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(folder, capsys, arguments, words):
    (folder / "broken.py").write_text("import numpy\ndef own(corpus:\n")
    assert main([part.format(folder=folder) for part in arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error


def test_printed_topics_name_their_chain(capsys):
    print_topics(simulated(num_documents=4, num_draws=3))
    assert "topic (chain 0)" in capsys.readouterr().out


def test_version_and_where_results_go(capsys):
    for arguments, words in ((["--version"], f"topiczoo {__version__}\n"), (["fit", "--help"], "The fit goes to OUT")):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0 and words in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "words"), [
    ("fit slda a.csv b.nc --topics 5", "no option '--topics': arguments of the story and the engine are given by --set"),
    ("report fit.nc page.html", "'page.html' is one argument too many; the file that is written is named by --out"),
    ("topics fit.nc --number 3", "no option '--number'; topiczoo topics --help lists those there are"),
    ("predict fit.nc a.csv b.csv c.csv", "'c.csv' is one argument too many."),
])  # fmt: skip
def test_a_word_that_no_command_knows_is_said_with_what_to_give(capsys, arguments, words):
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2 and words in capsys.readouterr().err


@pytest.fixture
def saved(folder):
    """A fit of two topics and a response, made by hand."""
    corpus = corpora.Corpus.from_texts(["soup bread", "bread soup soup", "wine"])
    draws = {"beta": np.full((1, 2, 2, 3), 1 / 3), "eta": np.zeros((1, 2, 2)), "sigma": np.ones((1, 2))}
    return fit_of(models.slda, draws, corpus, np.arange(3.0), num_topics=2).save(folder / "made.nc")


WRITING = {
    "fit": ["fit", "lda", "{folder}/reviews.csv", "{out}"],
    "predict": ["predict", "{folder}/made.nc", "{folder}/reviews.csv", "{out}"],
    "report": ["report", "{folder}/made.nc", "--out", "{out}"],
    "demo": ["demo", "--out", "{out}"],
}


@pytest.mark.parametrize("command", WRITING)
def test_places_for_results_are_looked_at_before_any_work(folder, capsys, monkeypatch, command):
    def work(*arguments, **options):
        raise AssertionError("work was done before the output was looked at")

    monkeypatch.setattr(corpora, "read", work)
    monkeypatch.setattr(inference, "load", work)
    monkeypatch.setattr("topiczoo.demo.demo", work)
    there = folder / "there.nc"
    there.write_text("a result")
    places = {
        str(folder): "is a folder",
        f"{folder}/none/out.nc": "is in no existing folder; make",
        f"{folder}/{'x' * 250}.nc": "cannot be written (File name too long)",  # with what a temporary name adds
        str(there): "is there already; name another, or give --force",
    }
    if Path("/proc").is_dir():
        places["/proc/out.nc"] = "cannot be written (No such file or directory)"
    for out, words in places.items():
        assert main([part.format(folder=folder, out=out) for part in WRITING[command]]) == 2
        error = capsys.readouterr().err.strip()
        assert f"the output {out!r} {words}" in error and "\n" not in error and ".part" not in error
    assert there.read_text() == "a result"
    assert not list(folder.glob("*.part"))
    with pytest.raises(AssertionError, match="work was done"):
        main([*(part.format(folder=folder, out=there) for part in WRITING[command]), "--force"])


def test_a_demonstration_leaves_an_old_report_alone(tmp_path, capsys):
    (tmp_path / "demo.html").write_text("a report")
    assert main(["demo", "--out", f"{tmp_path}/demo.nc"]) == 2
    assert f"{str(tmp_path / 'demo.html')!r} is there already" in capsys.readouterr().err


def engine_that(monkeypatch, act):
    """gibbs, under its own signature, replaced by a function of the corpus."""
    monkeypatch.setattr(inference, "gibbs", wraps(inference.gibbs)(lambda story, corpus, y=None, **_: act(corpus)))


def made_fit(corpus, **info):
    shape = 2, 5, 2, corpus.num_terms
    return fit_of(models.lda, {"beta": np.full(shape, 1 / corpus.num_terms)}, corpus, info=info, num_topics=2)


def test_an_interrupted_fit_is_kept_and_said_to_be_one(folder, tmp_path, capsys, monkeypatch):
    engine_that(monkeypatch, lambda corpus: made_fit(corpus, interrupted=True))
    out = tmp_path / "fit.nc"
    assert main(["fit", "lda", f"{folder}/reviews.csv", str(out)]) == 130
    printed = capsys.readouterr()
    assert "saved" not in printed.out and printed.err.count("\n") == 1
    assert f"interrupted; what there was by then (chains: 2, draws: 5) is saved to {out}; look at it by" in printed.err
    assert inference.load(out).info["interrupted"]


@pytest.mark.parametrize(
    ("raised", "status", "words"),
    [
        (KeyboardInterrupt(), 130, "topiczoo fit: interrupted; nothing was kept; give the command again"),
        (FloatingPointError("The loss is nan;\nlower it."), 2, "topiczoo fit: The loss is nan; lower it."),
        (
            KeyError("'eta' is no site of this fit; it has 'z'."),
            2,
            "topiczoo fit: 'eta' is no site of this fit; it has",
        ),
        (KeyError("year"), 2, "topiczoo fit: 'year' is asked for and is not there"),
    ],
)
def test_no_error_of_a_run_is_a_traceback(folder, tmp_path, capsys, monkeypatch, raised, status, words):
    def act(corpus):
        raise raised

    engine_that(monkeypatch, act)
    assert main(["fit", "lda", f"{folder}/reviews.csv", f"{tmp_path}/fit.nc"]) == status
    error = capsys.readouterr().err
    assert error.startswith(words) and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_interrupted_prediction_report_or_demonstration_leaves_nothing(saved, folder, tmp_path, capsys, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    (tmp_path / "new.csv").write_text("text\nsoup\n")
    monkeypatch.setattr(inference.Fit, "predict", interrupted)
    assert main(["predict", str(saved), f"{tmp_path}/new.csv", f"{tmp_path}/out"]) == 130
    monkeypatch.setattr(diagnostics, "report", interrupted)
    assert main(["report", str(saved), "--out", f"{tmp_path}/out"]) == 130
    engine_that(monkeypatch, lambda corpus: made_fit(corpus, interrupted=True))
    assert main(["demo", "--out", f"{tmp_path}/out"]) == 130
    assert capsys.readouterr().err.count("interrupted; nothing was kept") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


@pytest.mark.slow
def test_ctrl_c_ends_a_run_with_what_it_has(tmp_path):
    """A real signal to a real process, once draws are coming in."""
    out, reviews = tmp_path / "fit.nc", tmp_path / "reviews.csv"
    reviews.write_text("text\n" + "soup bread\nbread wine\nwine soup soup\n" * 2)
    endless = ["--set", "num_topics=2", "--set", "num_warmup=1", "--set", "num_samples=1000000"]
    arguments = ["fit", "lda", str(reviews), str(out), *endless]
    # a parent that ignores the signal would hand that down
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from topiczoo.inference.programs import progress; progress.EVERY = 0.0; "  # a line at every step
    code += f"from topiczoo.command_line import main; sys.exit(main({arguments!r}))"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        printed = b""
        while b"sample" not in printed and process.poll() is None:
            printed += os.read(process.stderr.fileno(), 1000)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)
    last = rest.decode().strip().splitlines()[-1]
    assert process.returncode == 130, rest.decode()
    assert "interrupted; what there was by then" in last and "Traceback" not in rest.decode()
    fit = inference.load(out)
    assert fit.info["interrupted"] and 0 < fit.draws["beta"].shape[1] < 1_000_000


def test_rows_that_do_not_count_are_counted(folder, tmp_path, capsys, monkeypatch):
    engine_that(monkeypatch, made_fit)
    reviews, out = tmp_path / "reviews.csv", str(tmp_path / "fit.nc")
    reviews.write_text("text,stars\nsoup bread,1\nbread soup,\nonce,2\n,3\nwine soup,2\nwine,1\n")
    assert main(["fit", "slda", str(reviews), out, "--y", "stars"]) == 0
    printed = capsys.readouterr().out
    assert "6 rows read: 2 left out, without a word of the vocabulary; 1 unlabelled\n" in printed
    assert f" s; to judge it: topiczoo report {out}\n" in printed and f"diagnose(inference.load({out!r}))" in printed
    assert main(["fit", "lda", f"{folder}/reviews.csv", str(tmp_path / "all.nc")]) == 0
    assert "60 rows read: all of them count\n" in capsys.readouterr().out
    monkeypatch.setattr(diagnostics, "report", lambda fit, path, **options: path)
    assert main(["report", out, "--out", f"{tmp_path}/out.html", "--test", str(reviews), "--y", "stars"]) == 0
    assert "6 rows read: 2 without a word that the fit knows; 1 unlabelled\n" in capsys.readouterr().out


def test_predictions_are_safe_to_open_in_a_spreadsheet(saved, tmp_path, capsys, monkeypatch):
    def predicted(fit, corpus, **options):
        probabilities = np.array([[0.9, 0.1], [0.2, 0.8]])
        return Prediction(
            corpus.names, np.zeros(2), np.zeros((1, 2)), np.zeros((1, 1, 2)), probabilities, np.array(["=1+1", "no"])
        )

    monkeypatch.setattr(inference.Fit, "predict", predicted)
    (tmp_path / "new.csv").write_text("text\nsoup\nunheard\n")
    arguments = ["predict", str(saved), f"{tmp_path}/new.csv", f"{tmp_path}/out.csv"]
    assert main(arguments) == 0
    assert "2 rows read: 1 without a word that the fit knows\n" in capsys.readouterr().out
    assert (tmp_path / "out.csv").read_text() == "document,label,p(=1+1),p(no)\n0,'=1+1,0.9,0.1\n1,no,0.2,0.8\n"
    assert main([*arguments, "--raw", "--force"]) == 0
    assert "\n0,=1+1,0.9" in (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not a readable table (No columns to parse from file)"),
        ("text\n", "holds a header and no rows: give at least one document"),
        ('text\n""\n', "has no document with a word that the fit knows, in 1 rows of column 'text'"),
        ("text\nunheard of\nagain\n", "has no document with a word that the fit knows, in 2 rows of column 'text'"),
        ("body\nsoup\n", "text asks for column 'text', which is not there"),
    ],
)
def test_nothing_to_predict_is_one_sentence(saved, tmp_path, capsys, content, words):
    (tmp_path / "new.csv").write_text(content)
    for command in (["predict", str(saved), "{new}", f"{tmp_path}/out"],
                    ["report", str(saved), "--out", f"{tmp_path}/out", "--test", "{new}"]):  # fmt: skip
        assert main([part.format(new=tmp_path / "new.csv") for part in command]) == 2
        error = capsys.readouterr().err.strip()
        assert "new.csv" in error or "column" in error
        assert words in error and "\n" not in error
