"""Effects, documents of a topic, and correlations of topics, against numbers worked out from the draws."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import stories
from fits import TRAIN, fit_of
from scipy.special import softmax

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.inference.posterior.effects import Slice, covariate_slices
from topiczoo.inference.posterior.tables import made_of_draws
from topiczoo.models import draw_words

RNG = np.random.default_rng(5)
BETA = RNG.dirichlet(np.ones(5), (2, 21, 2))
ETA = np.stack([np.arange(42.0).reshape(21, 2) - 10, -np.ones((21, 2))])  # 0th topic: -10, -8, ... 30
THETA = RNG.dirichlet([0.5, 1.0], (2, 21, 6))
Y = np.arange(6.0)
WITH = Corpus.from_counts(
    TRAIN.counts.toarray(), list("abcde"),
    covariates={"age": RNG.normal(size=6), "size": RNG.normal(size=6), "group": [0, 1, 2] * 2, "none": np.ones(6)},
)  # fmt: skip


def made(story=models.slda, corpus=TRAIN, y=Y, **draws):
    given = {"beta": BETA, "eta": ETA, "sigma": np.ones((2, 21)), "theta": THETA, **draws}
    return fit_of(story, given, corpus, y, num_topics=2)


def test_coefficients_have_means_intervals_and_the_probability_of_their_sign():
    frame = made().effects()
    assert list(frame.columns) == ["chain", "site", "topic", "mean", "low", "high", "sign_probability", "terms"]
    assert frame["site"].tolist() == ["eta", "eta"] and frame["topic"].tolist() == [0, 1]
    # -10, -8, ... 30: a twentieth lies below -8 and above 28, and 15 of 21 are above 0
    np.testing.assert_allclose(
        frame.loc[0, ["mean", "low", "high", "sign_probability"]].astype(float), [10, -8, 28, 15 / 21]
    )
    narrow = made().effects("eta", probability=0.5)
    np.testing.assert_allclose(narrow.loc[0, ["low", "high"]].astype(float), [0, 20])
    other = made().effects(chain=1)
    assert (other["chain"] == 1).all() and (other["mean"] == -1).all() and (other["sign_probability"] == 1).all()
    assert frame["terms"].tolist() == made().topics(5).groupby("topic")["term"].agg(" ".join).tolist()


def test_outputs_are_called_by_their_classes():
    draws = {"beta": BETA, "eta": np.stack([ETA, 2 * ETA, 3 * ETA], -1)}
    arguments = {"num_topics": 2, "response": "softmax", "outputs": 3}
    frame = fit_of(models.slda_glm, draws, TRAIN, list("xyzxyz"), **arguments).effects()
    assert frame["output"].tolist() == ["x", "y", "z"] * 2 and frame["topic"].tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(frame["mean"][:3], [10, 20, 30])


def test_what_is_no_coefficient_is_refused():
    for given, said in (
        ({"var_names": "sigma"}, "var_names has 'sigma'; the coefficients are 'eta': name some."),
        ({"chain": 2}, "chain is 2; the fit's chains are 0 to 1."),
        ({"probability": 1}, "probability is 1; give a number between 0 and 1."),
    ):
        with pytest.raises(ValueError, match=said):
            made().effects(**given)
    plain = fit_of(models.lda, {"beta": BETA, "theta": THETA}, TRAIN, num_topics=2)
    with pytest.raises(
        ValueError, match=r"The story 'lda' has no coefficients of topics or covariates; fit.topics\(\)"
    ):
        plain.effects()


def test_slopes_of_covariates_are_told_by_what_they_multiply():
    """The story calls them slope_age and slope_size; nothing but the names would change with other names."""
    slopes = {"slope_age": ETA[..., 0] + 1, "slope_size": ETA[..., 1]}
    arguments = {"num_topics": 2, "covariates": ["age", "size"]}
    fit = fit_of(models.slda_glm, {"beta": BETA, "eta": ETA, "sigma": np.ones((2, 21)), **slopes}, WITH, Y, **arguments)
    assert covariate_slices(fit) == [Slice("slope_age", "age"), Slice("slope_size", "size")]
    frame = fit.effects().set_index("site")
    assert frame.loc["slope_age", "covariate"] == "age" and frame.loc["slope_size", "covariate"] == "size"
    assert frame.loc["slope_age", "mean"] == 11 and pd.isna(frame.loc["slope_age", "topic"])
    assert frame.loc["eta", "covariate"].isna().all() and frame.loc["eta", "topic"].tolist() == [0, 1]


def prevalence(corpus, y=None, *, num_topics=2):
    """theta_d ~ Dir(exp(a + x_d W));  y_d ~ N(eta . zbar_d + level_{group_d}, 1): rows of W are of two covariates."""
    beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics)
    a = numpyro.sample("a", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    W = numpyro.sample("W", dist.Normal(0, 1).expand([2, num_topics]).to_event(2))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    level = numpyro.sample("level", dist.Normal(0, 1).expand([3]).to_event(1))
    x = jnp.stack([jnp.asarray(corpus.covariates[name]) for name in ("size", "age")], 1)
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.exp(a + spread * x @ W)))
    mean = draw_words(corpus, theta, beta) @ eta + level[jnp.asarray(corpus.covariates["group"], int)]
    with documents:
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def test_covariates_of_proportions_and_groups_are_found_in_a_story_of_ones_own():
    """A scale that multiplies as well is no coefficient, nor is the intercept; a covariate that nothing reads has none."""
    draws = {
        "beta": BETA, "eta": ETA, "a": np.zeros((2, 21, 2)), "W": RNG.normal(size=(2, 21, 2, 2)), "spread": np.ones((2, 21)),
        "level": RNG.normal(size=(2, 21, 3)),
    }  # fmt: skip
    fit = fit_of(prevalence, draws, WITH, Y, num_topics=2)
    assert set(covariate_slices(fit)) == {Slice("W", "age", 0, 1), Slice("W", "size", 0, 0), Slice("level", "group")}
    frame = fit.effects("W")
    assert frame["covariate"].tolist() == ["size", "size", "age", "age"] and frame["topic"].tolist() == [0, 1, 0, 1]
    assert "output" not in frame
    np.testing.assert_allclose(frame["mean"], draws["W"][0].mean(0).ravel())
    groups = fit.effects("level")
    assert groups["output"].tolist() == [0, 1, 2] and (groups["covariate"] == "group").all()
    assert "topic" not in groups and "terms" not in groups


def test_documents_of_a_topic_have_most_of_it():
    fit = made(corpus=TRAIN.with_texts([f"review {row}" for row in range(6)]))
    mean = THETA[1].mean(0)
    frame = fit.documents(1, 3, chain=1)
    order = np.argsort(-mean[:, 1])[:3]
    assert (
        frame["row"].tolist() == order.tolist() and frame["rank"].tolist() == [1, 2, 3] and (frame["chain"] == 1).all()
    )
    np.testing.assert_allclose(frame["share"], mean[order, 1])
    assert frame["text"].tolist() == [f"review {row}" for row in order]
    assert frame["document"].tolist() == TRAIN.names[order].tolist()
    every = fit.documents(n=2)
    assert every["topic"].tolist() == [0, 0, 1, 1] and len(fit.documents(0, 99)) == 6
    assert "text" not in made().documents(0)
    tied = made(theta=np.full((2, 21, 6, 2), 0.5)).documents(0)
    assert tied["row"].tolist() == np.argsort(-TRAIN.lengths, kind="stable")[:5].tolist()
    for given, said in (
        ({"topic": 2}, "topic is 2; give a number from 0 to 1."),
        ({"topic": 0, "n": 0}, "n is 0; give a whole number"),
        ({"topic": 0, "chain": 5}, "chain is 5; the fit's chains are 0 to 1."),
    ):
        with pytest.raises(ValueError, match=said):
            fit.documents(**given)


def test_documents_of_one_topic_each_are_told_from_their_words():
    """The mixture: Bayes' rule by hand, of the first chain and of the second, whose topics are the other way round."""
    beta = np.array([[0.6, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.6]])
    draws = {
        "beta": np.broadcast_to(np.stack([beta, beta[::-1]])[:, None], (2, 3, 2, 5)).copy(),
        "theta": np.full((2, 3, 2), 0.5),
    }
    fit = fit_of(models.mixture, draws, TRAIN, num_topics=2)
    logs = TRAIN.counts @ np.log(beta).T
    share = 1 / (1 + np.exp(logs[:, 1] - logs[:, 0]))
    found = fit.documents(0, 6)
    np.testing.assert_allclose(found.sort_values("row")["share"], share, rtol=1e-4)
    other = fit.documents(0, 6, chain=1)
    np.testing.assert_allclose(other.sort_values("row")["share"], 1 - share, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="gives each document one topic"):
        fit.correlations()


def test_correlations_are_means_over_draws():
    theta = RNG.dirichlet([0.5, 1.0, 2.0], (2, 21, 6))
    fit = fit_of(models.lda, {"beta": RNG.dirichlet(np.ones(5), (2, 21, 3)), "theta": theta}, TRAIN, num_topics=3)
    each = np.array([np.corrcoef(draw.T) for draw in theta[1]])
    frame = fit.correlations(chain=1)
    np.testing.assert_allclose(frame, each.mean(0), atol=1e-12)
    long = fit.correlations(interval=0.8, chain=1)
    assert long[["topic", "other"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(long["low"], np.quantile(each, 0.1, axis=0)[[0, 0, 1], [1, 2, 2]])
    np.testing.assert_allclose(long["high"], np.quantile(each, 0.9, axis=0)[[0, 0, 1], [1, 2, 2]])
    signs = (np.sign(each) == np.sign(each.mean(0))).mean(0)[[0, 0, 1], [1, 2, 2]]
    np.testing.assert_allclose(long["sign_probability"], signs)


def test_correlations_of_means_where_no_draws_were_kept():
    fit = made()
    fit.means = {"theta": fit.draws.pop("theta").mean(1)}
    np.testing.assert_allclose(fit.correlations(), np.corrcoef(THETA[0].mean(0).T), atol=1e-12)
    with pytest.raises(ValueError, match="interval is given, and the fit has kept no draws"):
        fit.correlations(interval=0.9)
    np.testing.assert_allclose(fit.documents(0, 1)["share"], THETA[0].mean(0)[:, 0].max())


def test_proportions_that_a_story_makes_are_those_of_their_chain_and_draw():
    """Where there are many draws some that are evenly spaced."""
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(2, 7, 6, 3)).astype(np.float32)
    draws = {"logits": logits, "beta": np.full((2, 7, 3, 5), 0.2, np.float32)}
    fit = fit_of(models.ctm, draws, TRAIN, num_topics=3)
    expected = softmax(logits, -1)
    np.testing.assert_allclose(made_of_draws(fit, "theta", most=4), expected[:, [0, 2, 4, 6]], rtol=1e-5)


def test_texts_stay_with_their_documents():
    texts = ["one two", "", "two three three", "one"]
    corpus = Corpus.from_texts(texts, empty="drop", keep_texts=True)
    assert corpus.texts.tolist() == ["one two", "two three three", "one"]
    assert corpus[[2, 0]].texts.tolist() == ["one", "one two"] and corpus.with_vocabulary(["one"]).texts is not None
    assert Corpus.from_frame(pd.DataFrame({"text": texts[2:]}), keep_texts=True).texts.tolist() == texts[2:]
    assert Corpus.from_texts(texts, empty="drop").texts is None
    with pytest.raises(ValueError, match="texts has 1 for 3 documents: give one a document"):
        corpus.with_texts(["one"])
