"""Files as people have them, from the file to the report: awkward tables, other formats, words, ids and covariates."""

from __future__ import annotations

import csv
import json
from argparse import Namespace

import numpy as np
import pandas as pd
import pytest
from fits import fit_of
from test_command_line import OWN, made_fit
from test_commands import Engine, of_numbers, of_slda

from topiczoo import corpora, diagnostics, inference, models
from topiczoo.command_line import RUNS, main
from topiczoo.commands import stories
from topiczoo.commands.arguments import find_story

_, STARS, ASPECTS = corpora.load_reviews(num_documents=80, return_aspects=True)


def awkward(path, *, encoding, delimiter, extra, rows=80):
    """Quotes, newlines and delimiters within quotes, blank cells, accents, numbers as the delimiter asks for."""
    with path.open("w", encoding=encoding, newline="") as file:
        table = csv.writer(file, delimiter=delimiter)
        table.writerow(["Nr", "Bewertung", "Sterne", "Jahr"])
        for i, (text, stars) in enumerate(zip(ASPECTS["text"][:rows], STARS, strict=False)):
            said = {0: f'Er sagte: "schön{delimiter} oder", {text}', 1: text.replace(". ", ".\n\n", 1)}.get(i % 5, text)
            number = f"{stars:.1f}".replace(".", "," if delimiter == ";" else ".")
            table.writerow([f"=R{i:03d}", "" if i == 7 else said + extra, "" if i == 9 else number, 2000 + i % 3])
    return str(path)


AWKWARD = {
    "latin": {"encoding": "latin-1", "delimiter": ";", "extra": " très bon"},
    "emoji": {"encoding": "utf-8-sig", "delimiter": ",", "extra": " 😀 très bon"},
    "wide": {"encoding": "utf-16", "delimiter": "\t", "extra": " 😀 très bon"},
}
COLUMNS = ["--text", "Bewertung", "--id", "Nr", "--covariates", "Jahr"]


@pytest.mark.parametrize("kind", AWKWARD)
def test_an_awkward_table_comes_to_the_engine_whole(tmp_path, capsys, monkeypatch, kind):
    engine = Engine(monkeypatch, "gibbs", of_slda)
    data = awkward(tmp_path / "reviews.csv", **AWKWARD[kind])
    assert main(["fit", "slda", data, f"{tmp_path}/fit.nc", *COLUMNS, "--y", "Sterne", "--min-df", "1"]) == 0
    printed = capsys.readouterr().out
    assert "80 rows read: 1 left out, without a word of the vocabulary; 1 unlabelled" in printed
    assert f"{data}: CSV, delimiter {AWKWARD[kind]['delimiter']!r}, encoding" in printed.splitlines()[0]
    _, corpus, y, _ = engine.given
    kept = [i for i in range(80) if i != 7]
    assert corpus.names.tolist() == [f"=R{i:03d}" for i in kept]
    assert corpus.covariates["Jahr"].tolist() == [2000 + i % 3 for i in kept]
    np.testing.assert_allclose(y, [np.nan if i == 9 else STARS[i] for i in kept], atol=0.051)
    column = {term: place for place, term in enumerate(corpus.vocabulary)}
    assert corpus.counts[:, [column["très"]]].toarray().ravel().tolist() == [1] * 79
    assert corpus.counts[:, [column["schön"]]].sum() == 16

    monkeypatch.setattr(inference.Fit, "predict", of_numbers)  # text and covariates are those of the fit
    assert main(["predict", f"{tmp_path}/fit.nc", data, f"{tmp_path}/out.csv", "--id", "Nr"]) == 0
    predicted = pd.read_csv(tmp_path / "out.csv")
    assert predicted.columns.tolist() == ["Nr", "mean", "low", "high"]
    assert predicted["Nr"].tolist() == [f"'=R{i:03d}" for i in range(80)]  # no formula for a spreadsheet


@pytest.mark.slow
def test_an_awkward_table_to_a_report(tmp_path):
    """By a real engine, and with predictions of documents that were not fitted."""
    data = awkward(tmp_path / "reviews.csv", **AWKWARD["latin"])
    settings = ["--engine", "vem", "--set", "num_topics=2", "--set", "num_iterations=5"]
    fit, page = f"{tmp_path}/fit.nc", tmp_path / "report.html"
    assert main(["fit", "slda", data, fit, *COLUMNS, "--y", "Sterne", "--standardise", *settings]) == 0
    new = awkward(tmp_path / "new.csv", rows=20, **AWKWARD["emoji"])
    assert main(["report", fit, "--out", str(page), "--test", new, "--y", "Sterne", "--id", "Nr"]) == 0
    assert "schön" in page.read_text() or "=R003" in page.read_text()
    assert main(["predict", fit, new, f"{tmp_path}/out.csv", "--id", "Nr"]) == 0
    predicted = pd.read_csv(tmp_path / "out.csv")
    assert len(predicted) == 20 and predicted["mean"].between(0, 6).all()


def write_jsonl(path):
    rows = [{"text": text, "stars": float(star)} for text, star in zip(ASPECTS["text"], STARS, strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)))


def write_folder(path):
    for i, text in enumerate(ASPECTS["text"]):
        (path / ("good" if STARS[i] > 3 else "bad")).mkdir(parents=True, exist_ok=True)
        (path / ("good" if STARS[i] > 3 else "bad") / f"{i:02d}.txt").write_text(text)


@pytest.mark.parametrize("name", ["reviews.jsonl", "reviews"])
def test_other_formats_come_to_the_engine(tmp_path, monkeypatch, name):
    path, engine = tmp_path / name, Engine(monkeypatch, "gibbs", lambda story, corpus, y: made_fit(corpus))
    (write_jsonl if name.endswith("jsonl") else write_folder)(path)
    column = "stars" if name.endswith("jsonl") else "folder"
    assert main(["fit", "lda", str(path), f"{tmp_path}/fit.nc", "--y", column]) == 0
    _, corpus, y, _ = engine.given
    if column == "stars":
        np.testing.assert_allclose(y, STARS)
    else:
        assert corpus.names[0].startswith("bad/") and [
            label in name for label, name in zip(y, corpus.names, strict=True)
        ]
        assert sorted(set(y)) == ["bad", "good"] and len(corpus) == 80


def test_ldac_from_fit_to_predictions(tmp_path, capsys, monkeypatch):
    """The ids of terms are those of the file of terms; of a fit to LDA-C, those of the fit."""
    (tmp_path / "a.dat").write_text("2 0:1 2:3\n1 1:2\n2 1:1 2:1\n")
    (tmp_path / "terms.txt").write_text("ant\nbee\ncat\n")
    (tmp_path / "y.txt").write_text("1.5\n\n2\n")
    (tmp_path / "other.txt").write_text("cat\nant\ndog\n")
    engine = Engine(monkeypatch, "gibbs", of_slda)
    data, fit, files = f"{tmp_path}/a.dat", f"{tmp_path}/fit.nc", ["--vocabulary", f"{tmp_path}/terms.txt"]
    assert main(["fit", "slda", data, fit, *files, "--responses", f"{tmp_path}/y.txt"]) == 0
    _, corpus, y, _ = engine.given
    assert corpus.vocabulary.tolist() == ["ant", "bee", "cat"]
    np.testing.assert_array_equal(y, [1.5, np.nan, 2])
    seen = []
    monkeypatch.setattr(
        inference.Fit, "predict", lambda fit, corpus, **_: seen.append(corpus) or of_numbers(fit, corpus)
    )
    assert main(["predict", fit, data, f"{tmp_path}/out.csv"]) == 0
    assert seen[0].counts.toarray().tolist() == corpus.counts.toarray().tolist()
    assert main(["predict", fit, data, f"{tmp_path}/out.csv", "--force", "--vocabulary", f"{tmp_path}/other.txt"]) == 0
    assert seen[1].counts.toarray().tolist() == [[0, 0, 1], [2, 0, 0], [1, 0, 0]]  # dog is unheard of
    assert main(["fit", "slda", data, f"{tmp_path}/b.nc", "--min-df", "2"]) == 2
    assert "--min-df chooses words of texts, and path" in capsys.readouterr().err
    texts = fit_of(models.lda, {"beta": np.full((1, 2, 2, 3), 1 / 3)}, corpus, num_topics=2).save(tmp_path / "texts.nc")
    assert main(["predict", str(texts), data, f"{tmp_path}/c.csv"]) == 2
    assert "is LDA-C, and the fit was to texts; give its terms by --vocabulary FILE." in capsys.readouterr().err


def test_words_of_new_documents_are_cut_as_those_of_the_fit(tmp_path, capsys, monkeypatch):
    """Pairs of words are formed after stop words are left out, for the fit and for predictions."""
    texts = ["good the soup", "Good soup wine", "wine good", "wine soup"]
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "texts.csv", index=False)
    (tmp_path / "stop.txt").write_text("The\ndon't\n")
    engine = Engine(monkeypatch, "gibbs", lambda story, corpus, y: made_fit(corpus))
    data, fit = f"{tmp_path}/texts.csv", f"{tmp_path}/fit.nc"
    words = ["--ngrams", "1,2", "--stop-words", f"{tmp_path}/stop.txt", "--min-df", "2", "--max-df", "0.7"]
    assert main(["fit", "lda", data, fit, *words]) == 0
    corpus = engine.given[1]
    assert corpus.vocabulary.tolist() == ["good soup"]  # single words are in three of four documents
    told = inference.load(fit).info["vectoriser"]
    assert told == {"min_df": 2, "stop_words": ["don", "the"], "max_df": 0.7, "ngram_range": [1, 2]}
    assert corpus.texts is None  # a saved fit holds them where that is asked for
    assert main(["fit", "lda", data, f"{tmp_path}/kept.nc", *words, "--keep-texts"]) == 0
    kept = inference.load(f"{tmp_path}/kept.nc")
    assert kept.corpus.texts.tolist() == texts[:2] and kept.info["vectoriser"] == told
    seen = []

    def noted(fit, corpus, **options):
        seen.append(corpus)
        return np.full((len(corpus), 2), 0.5)

    monkeypatch.setattr(inference.Fit, "transform", noted)
    predict = ["predict", fit, data, f"{tmp_path}/out.csv"]
    assert main(predict) == 0
    assert seen[0].counts.toarray().ravel().tolist() == [1, 1, 0, 0]
    assert main([*predict, "--vocabulary", f"{tmp_path}/stop.txt", "--force"]) == 2
    assert "texts are counted in those of the fit: leave it out." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--min-df", "0"], "--min-df is '0'; give a number of documents such as 5, or a share from 0.0 to 1.0."),
        (["--max-df", "1.5"], "--max-df is '1.5'; give"),
        (["--ngrams", "2,1"], "--ngrams is '2,1'; give two whole numbers from 1 on, the smaller first, such as 1,2."),
        (["--ngrams", "a"], "--ngrams is 'a'; give two whole numbers, such as 1,2."),
        (
            ["--stop-words", "french"],
            "--stop-words 'french' is no file; give one with a word a line, english, or none.",
        ),
        (["--y", "a", "--responses", "b"], "--y and --responses are both given"),
        (["--id", "nr"], "--id asks for column 'nr', which is not there, the nearest is 'Nr'"),
        (["--covariates", "Jahr,Monat"], "--covariates asks for column 'Monat', which is not there"),
        (["--encoding", "utf-9"], "--encoding is 'utf-9', which Python does not know"),
        (["--delimiter", "::"], "--delimiter is '::': give one character"),
        (["--responses", "y.txt"], "--responses is 'y.txt', and path"),
        (["--vocabulary", "none.txt"], "--vocabulary 'none.txt' is not a file"),
        (["--format", "ldac"], "line 1: starts with"),
    ],
)
def test_options_of_files_that_are_wrong_are_one_sentence(tmp_path, capsys, flags, words):
    data = awkward(tmp_path / "reviews.csv", rows=4, **AWKWARD["emoji"])
    assert main(["fit", "lda", data, f"{tmp_path}/fit.nc", "--text", "Bewertung", *flags]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("topiczoo fit: ") and words in error and "\n" not in error


def test_no_file_is_run_because_it_is_read(tmp_path, capsys):
    """A pickle under the name of a table, and a saved fit of one's own story without --story."""
    (tmp_path / "a.csv").write_bytes(b"\x80\x04\x95\x00\x00cos\nsystem\n")
    assert main(["fit", "lda", f"{tmp_path}/a.csv", f"{tmp_path}/fit.nc"]) == 2
    assert "is a pickle, no text" in capsys.readouterr().err
    (tmp_path / "own.py").write_text(OWN)
    corpus = corpora.Corpus.from_texts(["soup bread", "bread soup soup", "wine"])
    story = find_story(f"{tmp_path}/own.py:own")
    draws = {"beta": np.full((1, 2, 2, 3), 1 / 3), "eta": np.zeros((1, 2, 2))}
    saved = str(fit_of(story, draws, corpus, np.arange(3.0), num_topics=2).save(tmp_path / "own.nc"))
    assert main(["topics", saved]) == 2
    assert "none of topiczoo's own" in (error := capsys.readouterr().err) and "--story file.py:function" in error
    assert main(["topics", saved, "--story", f"{tmp_path}/own.py:own"]) == 0
    assert "topic (chain 0)" in capsys.readouterr().out


def test_topics_and_classes_to_a_file(tmp_path, capsys):
    corpus = corpora.Corpus.from_texts(["soup bread", "bread soup soup", "wine =cmd"], token_pattern=r"\S+")
    beta = np.array([[[[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]] * 2, [[[0.7, 0.1, 0.1, 0.1], [0.25] * 4]] * 2])
    saved = str(fit_of(models.lda, {"beta": beta}, corpus, num_topics=2).save(tmp_path / "fit.nc"))
    out = f"{tmp_path}/topics.csv"
    assert main(["topics", saved, "--n", "2", "--out", out]) == 0
    table = pd.read_csv(out)
    assert table["term"].tolist() == ["wine", "soup", "'=cmd", "bread"] and table["rank"].tolist() == [1, 2, 1, 2]
    assert main(["topics", saved, "--n", "1", "--chain", "1", "--out", out, "--force"]) == 0
    assert pd.read_csv(out)["probability"].round(2).tolist() == [0.7, 0.25]
    assert "2 topics written" in capsys.readouterr().out
    for flags, words in (
        (["--chain", "2"], "--chain is 2; the fit has chains 0 to 1."),
        (["--n", "0"], "--n is 0; give"),
    ):
        assert main(["topics", saved, *flags]) == 2
        assert words in capsys.readouterr().err


def test_numbers_of_topics_are_compared_in_a_table_and_a_picture(tmp_path, capsys, monkeypatch):
    asked = {}

    def compared(story, corpus, y, topics, **settings):
        asked.update(story=story, y=y, topics=topics, **settings)
        table = pd.DataFrame(
            {"words": [-2.0, -1.0], "words_error": [0.1, 0.1], "behind": [1.0, 0.0], "behind_error": [0.1, 0.0],
             "agreement": np.nan, "coherence": [0.1, 0.2]}, index=pd.Index([2, 3], name="num_topics"),
        )  # fmt: skip
        return diagnostics.TopicNumbers(table, "words")

    monkeypatch.setattr(diagnostics, "compare_topics", compared)
    data = awkward(tmp_path / "reviews.csv", **AWKWARD["latin"])
    command = ["compare", "slda", data, f"{tmp_path}/numbers.csv", "--text", "Bewertung"]
    flags = ["--y", "Sterne", "--standardise", "--by", "words", "--fits", "2", "--engine", "vem", "--set", "alpha=0.5"]
    assert main([*command, "--topics", "how_many=3,2", *flags]) == 0
    assert pd.read_csv(tmp_path / "numbers.csv")["num_topics"].tolist() == [2, 3]
    assert (tmp_path / "numbers.png").read_bytes().startswith(b"\x89PNG")
    assert "num_topics=3: the best score of held-out words" in capsys.readouterr().out
    assert asked["topics"] == {"how_many": [3, 2]} and asked["story"] is models.slda
    assert np.nanmean(asked.pop("y")) == pytest.approx(0, abs=1e-6)
    expected = {"engine": "vem", "by": "words", "fits": 2, "folds": 5, "seed": 0, "alpha": 0.5}
    assert {name: asked[name] for name in expected} == expected
    for flags, words in (
        (["--topics", "2,3"], "numbers.csv' is there already"),
        ([], "--topics is not given; name the numbers to try, such as --topics 5,10,20."),
        (["--topics", "5,x"], "--topics is '5,x'; give whole numbers from 1 on"),
        (["--topics", "5"], "--topics is '5'; give two numbers or more"),
        (["--topics", "2,3", "--set", "folds=3"], "an option of its own; write --folds 3."),
    ):
        force = [] if "already" in words else ["--force"]
        assert main([*command, *flags, *force]) == 2
        assert words in capsys.readouterr().err
    assert main([*command[:3], f"{tmp_path}/numbers.png", "--topics", "2,3"]) == 2
    assert "where the picture goes" in capsys.readouterr().err


def test_check_takes_documents_of_ones_own(tmp_path, monkeypatch, capsys):
    data = awkward(tmp_path / "reviews.csv", **AWKWARD["latin"])
    asked = []

    def check(story, corpus, y=None, **settings):
        asked.append((corpus, y, settings))
        return pd.DataFrame({"block": ["first"], "passes": [True]})

    monkeypatch.setattr(inference, "check", check)
    assert main(["check", "slda", data, *COLUMNS, "--y", "Sterne", "--seed", "4"]) == 0
    (corpus, y, settings) = asked[0]
    assert corpus.covariates.columns.tolist() == ["Jahr"] and np.nanmax(y) > 2 and settings == {"seed": 4}
    assert main(["check", "slda", "--y", "Sterne"]) == 2
    assert "--y names a column of your documents; give these as well, as DATA." in capsys.readouterr().err


@pytest.mark.slow
def test_documents_are_drawn_from_a_story_and_read_back(tmp_path, capsys):
    out = str(tmp_path / "drawn.csv")
    (tmp_path / "own.py").write_text(OWN)
    sizes = ["--documents", "20", "--length", "30", "--terms", "40", "--set", "num_topics=2", "--y", "stars"]
    assert main(["simulate", f"{tmp_path}/own.py:own", out, *sizes, "--seed", "1"]) == 0
    assert "Corpus(20 documents, 40 terms," in capsys.readouterr().out
    frame = pd.read_csv(out)
    assert frame.columns.tolist() == ["id", "text", "stars"] and np.isfinite(frame["stars"]).all()
    corpus = corpora.read(out, names="id")
    assert 20 * 20 < corpus.num_tokens < 20 * 40 and set(corpus.vocabulary) <= {f"term{i:02d}" for i in range(40)}
    drawn, y = inference.simulate(models.lda, corpus, seed=3, num_topics=2)
    assert (
        y is None
        and drawn.lengths.tolist() == corpus.lengths.tolist()
        and drawn.names.tolist() == corpus.names.tolist()
    )
    again, _ = inference.simulate("lda", corpus, seed=3, num_topics=2)
    other, _ = inference.simulate("lda", corpus, seed=4, num_topics=2)
    assert (drawn.counts != again.counts).nnz == 0 and (drawn.counts != other.counts).nnz > 0
    words = corpora.read(out, names="id", vocabulary=[f"term{i:02d}" for i in range(40)])
    placeholder = stories._placeholder(Namespace(seed=1, documents=20, length=30.0, terms=40))
    drawn, y = inference.simulate(find_story(f"{tmp_path}/own.py:own"), placeholder, seed=1, num_topics=2)
    assert (drawn.counts != words.counts).nnz == 0  # each text with its own response
    np.testing.assert_allclose(y, pd.read_csv(out)["stars"], rtol=1e-5)
    data = awkward(tmp_path / "reviews.csv", rows=10, **AWKWARD["latin"])
    like = ["--like", data, *COLUMNS, "--min-df", "1", "--set", "num_topics=2", "--force"]
    assert main(["simulate", "lda", out, *like]) == 0
    frame = pd.read_csv(out)
    assert frame.columns.tolist() == ["Nr", "text", "Jahr"] and frame["Nr"].tolist()[0] == "'=R000" and len(frame) == 9
    for flags, words in (
        ([*like, "--terms", "9"], "--terms and --like are both given"),
        (["--documents", "0", "--force"], "--documents is 0; give"),
        (["--set", "num_topic=2", "--force"], "'num_topic' is no argument of the story"), ([], "is there already"),
    ):  # fmt: skip
        assert main(["simulate", "lda", out, *flags]) == 2
        assert words in capsys.readouterr().err


def test_a_story_that_does_not_load_says_where_and_one_may_import_from_beside_it(tmp_path, capsys):
    (tmp_path / "beside.py").write_text("NUMBER = 3\n")
    (tmp_path / "own.py").write_text("from beside import NUMBER\n" + OWN.replace("num_topics=3", "num_topics=NUMBER"))
    assert find_story(f"{tmp_path}/own.py:own").__kwdefaults__ == {"num_topics": 3}
    (tmp_path / "broken.py").write_text("import numpy\n\nx = unheard_of\n")
    assert main(["check", f"{tmp_path}/broken.py:own"]) == 2
    assert (
        "broken.py' stops at line 3 (NameError: name 'unheard_of' is not defined); mend it." in capsys.readouterr().err
    )


def test_warnings_are_notes_of_one_line(tmp_path, capsys, monkeypatch):
    Engine(monkeypatch, "gibbs", lambda story, corpus, y: made_fit(corpus))
    (tmp_path / "a.csv").write_text("id,text\nx,soup wine\nx,wine soup\n")
    assert main(["fit", "lda", f"{tmp_path}/a.csv", f"{tmp_path}/fit.nc", "--id", "id"]) == 0
    assert capsys.readouterr().err.startswith("topiczoo fit: note: names holds duplicates (x): give each document a")


def test_results_in_a_pipe_have_no_sentences_among_them(tmp_path, capsys, monkeypatch):
    corpus = corpora.Corpus.from_texts(["soup bread", "bread soup soup", "wine"])
    saved = str(
        fit_of(models.lda, {"beta": np.full((1, 2, 2, 3), 1 / 3)}, corpus, num_topics=2).save(tmp_path / "fit.nc")
    )
    (tmp_path / "new.csv").write_text("text\nsoup\n")
    monkeypatch.setattr(inference.Fit, "predict", of_numbers)
    assert main(["predict", saved, f"{tmp_path}/new.csv", "/dev/null"]) == 0
    assert main(["topics", saved, "--out", "/dev/null"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "" and "1 predictions written" in printed.err and "2 topics written" in printed.err


def test_a_reader_that_has_gone_ends_it_quietly(tmp_path, monkeypatch, capsys):
    def gone(options):
        raise BrokenPipeError

    monkeypatch.setitem(RUNS, "models", gone)
    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["models"]) == 141
    assert capsys.readouterr().err == ""


def test_without_a_response_topic_proportions_are_predicted(tmp_path, monkeypatch):
    Engine(monkeypatch, "gibbs", lambda story, corpus, y: made_fit(corpus))
    (tmp_path / "a.csv").write_text("id,text\nx,soup wine\ny,wine soup\nz,\n")
    assert main(["fit", "lda", f"{tmp_path}/a.csv", f"{tmp_path}/fit.nc"]) == 0
    monkeypatch.setattr(
        inference.Fit, "transform", lambda fit, corpus, **_: np.array([[1, 0], [0.25, 0.75], [0.5, 0.5]])
    )
    assert main(["predict", f"{tmp_path}/fit.nc", f"{tmp_path}/a.csv", f"{tmp_path}/out.csv", "--id", "id"]) == 0
    assert (tmp_path / "out.csv").read_text() == "id,topic 0,topic 1\nx,1.0,0.0\ny,0.25,0.75\nz,0.5,0.5\n"
