"""The command line, in process: what it prints, writes and refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from report_fits import simulated

from topiczoo import corpora
from topiczoo.command_line import main, print_topics

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


def test_fit_then_predict_in_the_units_of_the_response(folder, capsys):
    fit, out = str(folder / "fit.nc"), str(folder / "predicted.csv")
    few = ["--set", "num_topics=4", "--set", "num_warmup=20", "--set", "num_samples=20", "--set", "num_chains=1"]
    story = f"{folder}/own.py:own"
    assert main(["fit", story, f"{folder}/reviews.csv", fit, "--y", "stars", "--standardise", *few]) == 0
    assert "saved to" in capsys.readouterr().out
    assert main(["predict", fit, f"{folder}/reviews.csv", out, "--story", story]) == 0
    predicted = pd.read_csv(out)
    assert list(predicted.columns) == ["document", "mean", "low", "high"] and len(predicted) == 60
    stars = pd.read_csv(folder / "reviews.csv")["stars"]  # not in standard units, whose mean is 0
    assert abs(predicted["mean"].mean() - stars.mean()) < 0.5 and predicted["mean"].std() < 2 * stars.std()
    assert (predicted["low"] < predicted["high"]).all()


def test_classes_by_a_story_without_topics(folder, capsys):
    """Labels with blanks are fitted, shown and predicted; the background is the corpus's own."""
    table = pd.read_csv(folder / "reviews.csv")
    table["mood"] = np.where(table.pop("stars") > 3, "good", "bad")
    table.loc[:3, "mood"] = None
    table.to_csv(folder / "moods.csv", index=False)
    fit, out = str(folder / "moods.nc"), str(folder / "moods-predicted.csv")
    laplace = ["--set", "prior=laplace", "--set", "scale=1.0"]
    fitted = ["fit", "sage_nb", f"{folder}/moods.csv", fit, "--y", "mood", "--engine", "vem", "--set", "outputs=2"]
    assert main([*fitted, *laplace]) == 0
    printed = capsys.readouterr().out
    assert "good " in printed and "bad " in printed and "saved to" in printed
    assert main(["predict", fit, f"{folder}/moods.csv", out]) == 0
    predicted = pd.read_csv(out)
    assert list(predicted.columns) == ["document", "label", "p(bad)", "p(good)"]
    known = table["mood"].notna()
    assert (predicted["label"] == table["mood"])[known].mean() > 0.9


def test_check_a_story_of_ones_own(folder, capsys):
    assert main(["check", f"{folder}/own.py:own"]) == 0
    assert "topic sweep, theta integrated out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["check", "slds"],
            "'slds' is no story of the zoo; there are disclda, lda, medlda, mixture, sage_facets, sage_geo,",
        ),
        (["check", "nowhere.py:story"], "'nowhere.py' is no file"),
        (["fit", "slda", "{folder}/none.csv", "out.nc"], "none.csv"),
        (["fit", "slda", "{folder}/reviews.csv", "out.nc", "--y", "rating"], "rating"),
        (["fit", "lda", "{folder}/reviews.csv", "out.nc", "--set", "num_topics"], "has no '='"),
        (["fit", "lda", "{folder}/reviews.csv", "out.nc", "--set", "topics=3"], "'topics' is no argument"),
        (["predict", "{folder}/own.py", "{folder}/reviews.csv", "out.csv"], "cannot be read as netCDF"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(folder, capsys, arguments, words):
    assert main([part.format(folder=folder) for part in arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error


def test_printed_topics_name_their_chain(capsys):
    print_topics(simulated(num_documents=4, num_draws=3))
    assert "topic (chain 0)" in capsys.readouterr().out
