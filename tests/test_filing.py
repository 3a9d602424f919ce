"""Predictions and proportions from Parquet to Parquet: what memory would give, whatever the batches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from fits import fit_of

from topiczoo import corpora, inference, models
from topiczoo.command_line import main
from topiczoo.corpora import Corpus

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TERMS = list("abcde")
TEXTS = ["a a b", "c d e e", "b b", "unknown", "d d d a", "e c", "a e"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("new")
    for number, part in enumerate((slice(0, 3), slice(3, 7))):
        texts = TEXTS[part]
        table = pyarrow.table({"text": texts, "id": [f"{number}-{i}" for i in range(len(texts))]})
        parquet.write_table(table, folder / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(0)
    draws = {"beta": rng.dirichlet(np.ones(5), (1, 3, 2)), "eta": rng.normal(size=(1, 3, 2)), "sigma": np.ones((1, 3))}
    train = Corpus.from_counts(rng.poisson(1.5, (6, 5)) + 1, TERMS)
    supervised = fit_of(models.slda, draws, train, rng.normal(size=6), num_topics=2)
    alone = fit_of(models.lda, {"beta": draws["beta"]}, train, num_topics=2)
    return supervised, alone


def stream(files, size=3):
    return corpora.stream(files, vocabulary=TERMS, names="id", batch_size=size, token_pattern=r"\w+")


WHOLE = Corpus.from_texts(TEXTS, vocabulary=TERMS, empty="keep", token_pattern=r"\w+")
ROWS = np.flatnonzero(WHOLE.lengths)  # one without known words is drawn from the prior, with its row's random numbers
NAMES = ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2", "1-3"]


def test_predictions_of_a_stream_are_those_of_its_documents(files, fits, tmp_path):
    path = fits[0].predict_to(tmp_path / "out.parquet", stream(files), interval=0.8, progress_bar=False)
    table, told = pd.read_parquet(path), fits[0].predict(WHOLE, alike=True)
    assert table.columns.tolist() == ["id", "mean", "low", "high"] and table["id"].tolist() == NAMES
    np.testing.assert_allclose(table["mean"][ROWS], told.mean[ROWS], rtol=1e-4, atol=1e-5)
    assert (table["low"] < table["high"]).all()


@pytest.mark.slow
def test_proportions_of_a_stream_are_those_of_its_documents(files, fits, tmp_path):
    path = fits[1].transform_to(tmp_path / "shares.parquet", stream(files, 7), progress_bar=False)
    table = pd.read_parquet(path).set_index("id")
    shares = fits[1].transform(WHOLE, alike=True)
    assert table.columns.tolist() == ["topic 0", "topic 1"] and table.index.tolist() == NAMES
    np.testing.assert_allclose(table.to_numpy()[ROWS], shares[ROWS], rtol=1e-4, atol=1e-5)


def test_a_file_is_whole_or_not_there(files, fits, tmp_path, monkeypatch):
    def fails(fit, corpus, **options):
        if corpus.names[0] != "0-0":
            raise FloatingPointError("in the second batch")
        return np.ones((len(corpus), 2)) / 2

    monkeypatch.setattr("topiczoo.inference.filing.transform", fails)
    with pytest.raises(FloatingPointError, match="second batch"):
        fits[1].transform_to(tmp_path / "out.parquet", stream(files), progress_bar=False)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_said_at_once(files, fits, tmp_path):
    own = stream(files)
    for path, given, sentence in (
        (tmp_path / "out.csv", own, "let it end in .parquet"),
        (tmp_path / "no" / "out.parquet", own, "no file in an existing folder"),
        (files / "0.parquet", own, "a file that the stream reads"),
        (tmp_path / "out.parquet", fits[0].corpus, "stream is a Corpus"),
    ):
        with pytest.raises((ValueError, TypeError, FileNotFoundError), match=sentence):
            fits[0].predict_to(path, given)
    with pytest.raises(ValueError, match="has no response; use transform_to"):
        fits[1].predict_to(tmp_path / "out.parquet", own)


def test_the_command_line_predicts_from_parquet_to_parquet(files, fits, tmp_path, capsys, monkeypatch):
    fit = fits[0]
    fit.info["standardised"] = (10.0, 2.0)
    monkeypatch.setattr(inference, "load", lambda path, story=None: fit)
    told = pd.DataFrame({"mean": [1.0], "low": [0.0], "high": [2.0]})

    class Told:
        def __init__(self, corpus):
            self.names = corpus.names

        def frame(self, interval):
            return pd.concat([told] * len(self.names)).set_index(pd.Index(self.names, name="document"))

    monkeypatch.setattr("topiczoo.inference.filing.predict", lambda fit, corpus, **options: Told(corpus))
    out = str(tmp_path / "out.parquet")
    assert main(["predict", "fit.nc", f"{files}/*.parquet", out, "--id", "id"]) == 0
    assert "7 predictions written to" in capsys.readouterr().out
    table = pd.read_parquet(out)
    assert (
        table["id"].tolist()[-1] == "1-3"
        and table["mean"].tolist() == [12.0] * 7
        and table["low"].tolist() == [10.0] * 7
    )
    for data, result, sentence in (
        (f"{files}/*.parquet", "out.csv", "let OUT end in .parquet as well"),
        (f"{files}/new.csv", "other.parquet", "written from Parquet files alone"),
        (f"{files}/*.parquet", "other.parquet", "--text asks for column 'words'"),
    ):
        assert main(["predict", "fit.nc", data, str(tmp_path / result), "--text", "words"]) != 0
        assert sentence in capsys.readouterr().err
