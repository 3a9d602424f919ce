"""Options in a TOML file: the same as on the command line, which wins; data and nothing else."""

from __future__ import annotations

import pytest

from topiczoo.command_line import RUNS, main


@pytest.fixture
def given(tmp_path, monkeypatch):
    """The options that a command gets from a file and from what is given beside it."""

    def read(text: str, *arguments: str):
        (tmp_path / "run.toml").write_text(text)
        kept: list = []
        command = arguments[0]
        monkeypatch.setitem(RUNS, command, lambda options: kept.append(options) or 0)
        status = main([*arguments, "--config", str(tmp_path / "run.toml")])
        return kept[0] if kept else status

    return read


FIT = ("fit", "lda", "data.csv", "out.nc")


def test_a_file_says_what_the_command_line_leaves_open(given):
    text = """
    text = "body"
    seed = 5
    min_df = 0.01
    force = true
    covariates = ["a", "b"]
    engine = "vem"
    [fit]
    seed = 7
    ngrams = [1, 2]
    set = {num_topics = 4, prior = "laplace", alpha = [0.1, 0.2]}
    [compare]
    topics = [5, 10]
    """
    options = given(text, *FIT)
    assert (options.text, options.min_df, options.covariates, options.ngrams) == ("body", "0.01", "a,b", "1,2")
    assert options.force is True and options.seed == 7 and options.engine == "vem"
    assert options.set == ["num_topics=4", "prior='laplace'", "alpha=[0.1, 0.2]"]
    options = given(text, *FIT, "--seed", "3", "--text", "said", "--engine", "svi", "--set", "num_topics=9")
    assert (options.seed, options.text, options.engine) == (3, "said", "svi")
    assert options.set[-1] == "num_topics=9" and options.set[0] == "num_topics=4"  # the last one counts
    options = given(text, "compare", "lda", "data.csv", "out.csv")
    assert options.topics == "5,10" and options.seed == 5  # what stands below [fit] is for fit
    assert given("", *FIT).min_df is None  # nothing is left of the file before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("min_dff = 3", "has 'min_dff', which is no option of topiczoo fit, the nearest is 'min-df'."),
        (
            "interval = 0.8",
            "has 'interval', which is no option of topiczoo fit, but of topiczoo predict; put it below [",
        ),
        ("zzzz = 1", "has 'zzzz', which is no option of topiczoo fit; there are engine,"),
        (
            "[predict]\nintervall = 0.8",
            "has 'intervall', which is no option of topiczoo predict, the nearest is 'inter",
        ),
        ("[fitt]\nseed = 1", "has 'fitt', which is no option of topiczoo fit"),
        ("config = 'other.toml'", "has 'config', which is no option"),
        ("[predict]\nstory = 'own.py:own'", "names a story, and a file runs nothing; give it on the command line."),
        ("story = 'own.py:own'", "names a story, and a file runs nothing"),
        ("seed = 'many'", "seed is 'many'; give a number."),
        ("force = 'yes'", "force is 'yes'; give true or false."),
        ("engine = 'em'", "engine is 'em'; choose from gibbs, nuts, svi, vem."),
        ("text = true", "text is True; give what --text takes."),
        ("set = ['num_topics=4']", "set is ['num_topics=4']; give a table, such as set = {num_topics = 10}."),
        ("seed = ", "is no TOML (Invalid value (at end of document)); mend it."),
    ],
)
def test_what_a_file_may_not_say_is_one_sentence(given, capsys, text, words):
    assert given(text, *FIT) == 2
    error = capsys.readouterr().err
    assert error.startswith("topiczoo fit: --config ") and words in error and error.count("\n") == 1


def test_a_file_that_is_not_there(capsys):
    assert main([*FIT, "--config", "none.toml"]) == 2
    assert "--config 'none.toml' is no file; give a TOML file of options." in capsys.readouterr().err
