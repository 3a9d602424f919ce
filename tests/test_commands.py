"""What the commands hand to an engine and what they make of its predictions: engines and predictions made by hand."""

from __future__ import annotations

from argparse import Namespace
from functools import wraps

import numpy as np
import pandas as pd
import pytest
from fits import fit_of
from report_fits import simulated
from test_command_line import folder, made_fit  # noqa: F401

from topiczoo import corpora, diagnostics, inference, models
from topiczoo.command_line import main
from topiczoo.commands import using
from topiczoo.commands.using import table_of
from topiczoo.inference.predictive.prediction import Prediction


class Engine:
    """In the place of one of inference's, under its signature: notes what it is given and gives a fit made by hand."""

    def __init__(self, monkeypatch, name, make):
        self.given, self.make = None, make

        @wraps(getattr(inference, name))
        def run(story, corpus, y=None, **settings):
            self.given = story, corpus, y, settings
            return self.make(story, corpus, y)

        monkeypatch.setattr(inference, name, run)


def of_slda(story, corpus, y):
    draws = {"beta": np.full((1, 2, 2, corpus.num_terms), 1 / corpus.num_terms), "eta": np.array([[[-1.0, 1.0]] * 2])}
    return fit_of(story, draws, corpus, y, num_topics=2)


def of_numbers(fit, corpus, **options):
    """Documents d have draws from d - 1 to d + 1, in the fit's own units."""
    draws = np.arange(len(corpus)) + np.linspace(-1, 1, 101)[:, None]
    return Prediction(corpus.names, draws.mean(0), draws, draws[None])


@pytest.mark.parametrize("standardise", [True, False])
def test_fit_then_predict_in_the_units_of_the_response(folder, tmp_path, capsys, monkeypatch, standardise):  # noqa: F811
    """What the engine sees is in standard units, what is predicted is not: its mean and both ends of its interval."""
    table = pd.read_csv(folder / "reviews.csv")
    table.loc[4, "stars"] = np.nan
    table.to_csv(tmp_path / "reviews.csv", index=False)
    engine = Engine(monkeypatch, "gibbs", of_slda)
    monkeypatch.setattr(inference.Fit, "predict", of_numbers)
    fit, story = str(tmp_path / "fit.nc"), f"{folder}/own.py:own"
    settings = ["--set", "num_topics=2", "--set", "num_warmup=20", "--seed", "5"]
    flags = ["--standardise"] if standardise else []
    assert main(["fit", story, f"{tmp_path}/reviews.csv", fit, "--y", "stars", *flags, *settings]) == 0
    printed = capsys.readouterr().out
    assert "saved to" in printed and "60 rows read: 1 unlabelled" in printed and "--story" in printed
    given, corpus, y, settings = engine.given
    assert str(settings.pop("checkpoint")) == f"{fit}.checkpoint"
    assert given.__name__ == "own" and settings == {"num_topics": 2, "num_warmup": 20, "seed": 5} and len(corpus) == 60
    shift, scale = (table["stars"].mean(), table["stars"].std(ddof=0)) if standardise else (0.0, 1.0)
    np.testing.assert_allclose(y, (table["stars"] - shift) / scale, rtol=1e-6)
    assert inference.load(fit, given).info.get("standardised", [0.0, 1.0]) == pytest.approx([shift, scale])
    for flags, reach in (([], 0.9), (["--interval", "0.5"], 0.5)):
        command = [
            "predict",
            fit,
            f"{tmp_path}/reviews.csv",
            f"{tmp_path}/out.csv",
            "--story",
            story,
            "--force",
            *flags,
        ]
        assert main(command) == 0
        predicted = pd.read_csv(tmp_path / "out.csv")
        assert list(predicted.columns) == ["document", "mean", "low", "high"] and len(predicted) == 60
        place = np.arange(60)
        for column, ends in (("mean", place), ("low", place - reach), ("high", place + reach)):
            np.testing.assert_allclose(predicted[column], ends * scale + shift, rtol=1e-6, atol=1e-9)
    assert "60 predictions written" in capsys.readouterr().out


def test_words_are_chosen_as_told_and_remembered(tmp_path, monkeypatch):
    (tmp_path / "texts.csv").write_text("said\nthe soup\nthe soup bread\nthe bread wine\n")
    engine = Engine(monkeypatch, "gibbs", lambda story, corpus, y: made_fit(corpus))
    command = ["fit", "lda", f"{tmp_path}/texts.csv", f"{tmp_path}/fit.nc", "--text", "said", "--force"]
    for flags, words in (
        ([], ["bread", "soup"]), (["--min-df", "1"], ["bread", "soup", "wine"]),
        (["--stop-words", "none"], ["bread", "soup", "the"]), (["--min-df", "3", "--stop-words", "none"], ["the"]),
    ):  # fmt: skip
        assert main([*command, *flags]) == 0
        assert sorted(engine.given[1].vocabulary) == words and engine.given[3]["seed"] == 0
    vectoriser = {"min_df": 3, "stop_words": None}
    assert inference.load(tmp_path / "fit.nc").info["vectoriser"] == vectoriser


def test_classes_by_a_story_without_topics(folder, tmp_path, capsys, monkeypatch):  # noqa: F811
    """Labels with blanks are handed on; each class is shown by its leading terms, on the background of the corpus."""
    table = pd.read_csv(folder / "reviews.csv")
    table["mood"] = np.where(table.pop("stars") > 3, "good", "bad")
    table.loc[:3, "mood"] = None
    table.to_csv(tmp_path / "moods.csv", index=False)

    def make(story, corpus, y):
        raised = np.zeros((1, 1, 2, corpus.num_terms))
        raised[..., 0, 5], raised[..., 1, 7] = 1.0, 2.0
        arguments = {"background": models.background(corpus), "outputs": 2}
        draws = {"deviation": raised, "share": np.full((1, 1, 2), 0.5)}
        return fit_of(story, draws, corpus, ["bad" if label is None else label for label in y], **arguments)

    engine = Engine(monkeypatch, "vem", make)
    fit = str(tmp_path / "moods.nc")
    fitted = ["fit", "sage_nb", f"{tmp_path}/moods.csv", fit, "--y", "mood", "--engine", "vem", "--set", "outputs=2"]
    assert main([*fitted, "--set", "prior=laplace", "--set", "scale=1.0"]) == 0
    _, corpus, y, settings = engine.given
    assert settings["prior"] == "laplace" and settings["scale"] == 1.0 and settings["outputs"] == 2
    np.testing.assert_array_equal(settings["background"], models.background(corpus))
    assert pd.isna(y[:4]).all() and list(y[4:]) == table["mood"][4:].tolist()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split() for line in printed if line.startswith(("bad", "good"))] == [
        ["bad", corpus.vocabulary[5]], ["good", corpus.vocabulary[7]],
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        main([*fitted[:-4], "--engine", "em"])
    assert main([*fitted, "--force", "--standardise"]) == 2
    assert "--standardise needs numbers, and the column 'mood' holds labels" in capsys.readouterr().err


def test_check_a_story_of_ones_own(folder, capsys, monkeypatch):  # noqa: F811
    """In standard units and with few topics; the status says whether all blocks pass."""
    for passes in (True, False):

        def check(story, corpus, y=None, *, passes=passes, **settings):
            np.testing.assert_allclose([y.mean(), y.std(), len(corpus)], [0, 1, 60], atol=1e-6)
            assert story.__name__ == "own" and settings == {"seed": 0, **({"num_topics": 5} if passes else {})}
            return pd.DataFrame({"block": ["first", "second"], "passes": [True, passes]})

        monkeypatch.setattr(inference, "check", wraps(inference.check)(check))
        flags = ["--set", "num_topics=5"] if passes else []
        assert main(["check", f"{folder}/own.py:own", *flags]) == (0 if passes else 1)
        assert "second" in capsys.readouterr().out


@pytest.mark.slow
def test_the_demonstration_scores_what_it_has_not_seen(tmp_path, capsys, monkeypatch):
    """With a fit and predictions by hand: half of the truth is predicted, and intervals reach 0.6 on either side."""

    def make(story, corpus, y):
        fit = of_slda(story, corpus, y)
        fit.info |= {"interrupted": False, "blocks": {"eta": "a normal block"}}
        return fit

    engine, asked = Engine(monkeypatch, "gibbs", make), {}
    whole, stars = corpora.load_reviews(seed=0)
    rows = dict(zip(whole.names, range(len(whole)), strict=True))

    def predict(fit, corpus, seed):
        asked["train"], asked["test"] = fit.corpus, corpus
        mean, scale = asked["units"] = fit.info["standardised"]
        truth = (stars[[rows[name] for name in corpus.names]] - mean) / scale
        asked["y"] = truth
        draws = truth / 2 + np.linspace(-0.6, 0.6, 101)[:, None] / 0.9
        return Prediction(corpus.names, truth / 2, draws, draws[None])

    class Verdict:
        verdict = "Rely on it."

    monkeypatch.setattr(inference.Fit, "predict", predict)
    monkeypatch.setattr(diagnostics, "diagnose", lambda fit, seed: Verdict())
    monkeypatch.setattr(diagnostics, "report", lambda diagnosis, path, seed: path)
    assert main(["demo", "--out", f"{tmp_path}/demo.nc"]) == 0
    printed = capsys.readouterr().out
    train, test, y = asked["train"], asked["test"], asked["y"]
    assert len(test) == 200 and not set(train.names) & set(test.names) and len(train) + 200 == len(whole)
    seen = stars[[rows[name] for name in train.names]]
    assert asked["units"] == pytest.approx([seen.mean(), seen.std()])
    np.testing.assert_allclose(engine.given[2], (seen - seen.mean()) / seen.std(), rtol=1e-6)
    spread = np.sum((y - y.mean()) ** 2)
    for name, error in (("mean of the training reviews", np.sum(y**2)), ("slda, averaged", np.sum((y / 2) ** 2))):
        assert f"{1 - error / spread:6.3f}  {name}" in printed
    assert f"{np.mean(np.abs(y / 2) < 0.6):6.1%}  of them inside their 90%" in printed
    assert "  Rely on it." in printed and f"{tmp_path}/demo.html" in printed
    assert inference.load(tmp_path / "demo.nc").info["standardised"] == pytest.approx(asked["units"])


def test_a_report_is_handed_new_documents_in_the_units_of_the_fit(tmp_path, capsys, monkeypatch):
    fit = simulated(info={"standardised": [3.0, 2.0]}, num_documents=4, num_draws=3)
    texts = ["term5 term7 term9", "term4 term10 unheard"]
    pd.DataFrame({"text": texts, "y": [3.5, 5.0]}).to_csv(tmp_path / "test.csv", index=False)
    saved, out, test = str(fit.save(tmp_path / "fit.nc")), str(tmp_path / "out.html"), str(tmp_path / "test.csv")
    calls = []

    def noted(diagnosis, path, **options):
        calls.append((diagnosis, options))
        return path

    monkeypatch.setattr(diagnostics, "report", noted)
    assert main(["report", saved, "--out", out, "--test", test, "--y", "y", "--documents", "7", "--seed", "3"]) == 0
    ((diagnosis, options),) = calls
    said, loaded = capsys.readouterr().out, diagnosis.fit
    assert out in said and diagnosis.verdict in said
    np.testing.assert_array_equal(loaded.corpus.counts.toarray(), fit.corpus.counts.toarray())
    np.testing.assert_allclose(options.pop("y_test"), [0.25, 1.0])  # in the units of the fit: (y - 3) / 2
    assert options.pop("test").texts.tolist() == texts and options == {"documents": 7, "seed": 3}
    monkeypatch.undo()
    assert main(["report", saved, "--out", str(tmp_path / "no" / "out.html")]) == 2
    assert "in no existing folder" in capsys.readouterr().err
    assert main(["report", saved, "--y", "y"]) == 2
    assert "--test" in capsys.readouterr().err


def test_each_of_several_responses_has_its_columns():
    names = np.array(["a", "b"])
    draws = np.array([[0.0, 2.0], [2.0, 4.0]])
    stars = Prediction(names, np.array([1.0, 3.0]), draws, draws[None])
    helpful = Prediction(names, np.array([5.0, 7.0]), draws + 4, draws[None] + 4)
    found = table_of({"stars": stars, "helpful": helpful}, 0.9)
    assert found.columns.tolist() == [
        f"{name}: {part}" for name in ("stars", "helpful") for part in ("mean", "low", "high")
    ]
    assert found.index.tolist() == ["a", "b"] and found.index.name == "document"
    assert found["helpful: mean"].tolist() == [5.0, 7.0] and found["stars: mean"].tolist() == [1.0, 3.0]
    assert table_of(stars, 0.9).columns.tolist() == ["mean", "low", "high"]


def test_topics_of_a_chain_are_written_in_the_order_that_is_asked_for(tmp_path, monkeypatch, capsys):
    beta = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 2))
    fit = fit_of(models.lda, {"beta": beta}, num_topics=2)
    monkeypatch.setattr(using, "load_fit", lambda options: fit)
    path = str(tmp_path / "topics.csv")
    using.topics(Namespace(out=path, force=True, n=3, chain=1, by="probability", fit="fit.nc", story=None))
    written, told = pd.read_csv(path), fit.topics(3, by="probability", chain=1)
    assert written["term"].tolist() == told["term"].tolist() and (written["chain"] == 1).all()
    np.testing.assert_allclose(written["probability"], told["probability"], rtol=1e-4)
    assert "2 topics written" in capsys.readouterr().out
