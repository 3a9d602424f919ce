"""Figures by what they hold: bars, texts, places and colours, on a fit whose numbers are known."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fits import fit_of
from matplotlib.colors import to_hex
from report_fits import classes, simulated
from scipy.spatial.distance import jensenshannon

from topiczoo import diagnostics, models
from topiczoo.diagnostics.plotting.coefficients import leading_rows
from topiczoo.diagnostics.plotting.predictions import wilson
from topiczoo.diagnostics.plotting.topic_map import classical_scaling, topic_distances
from topiczoo.inference.predictive.prediction import Prediction


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fit():
    return simulated(num_topics=3)


@pytest.fixture(scope="module")
def of_classes():
    return simulated(classes, num_topics=3, num_chains=1)


def drawn(axes):
    """The figure, drawn: what cannot be drawn has failed."""
    figure = np.ravel(axes)[0].figure
    figure.canvas.draw()
    return figure


def texts(axis):
    return [label.get_text() for label in axis.get_yticklabels()]


def test_topics_are_bars_of_their_leading_terms(fit):
    axes = diagnostics.plot_topics(fit, n=4)
    drawn(axes)
    table = fit.topics(4)
    assert len(axes) == 3
    for k, axis in enumerate(axes):
        rows = table[table["topic"] == k]
        assert [text[:12] for text in texts(axis)] == [term[:12] for term in rows["term"]]
        among, inside = axis.containers
        np.testing.assert_allclose([bar.get_width() for bar in inside], rows["probability"])
        counts = np.asarray(fit.corpus.counts.sum(0)) / fit.corpus.num_tokens
        expected = [counts[list(fit.vocabulary).index(term)] for term in rows["term"]]
        np.testing.assert_allclose([bar.get_width() for bar in among], expected)
        share = fit.corpus.lengths @ fit.mean("theta", chain=0)[:, k] / fit.corpus.num_tokens
        assert f"{share:.0%} of words, eta {rows['eta'].iloc[0]:+.2f}" in [text.get_text() for text in axis.texts]
    (only,) = plt.subplots(1, 1, squeeze=False)[1].ravel()
    assert diagnostics.plot_topics(fit, topics=2, n=2, by="frex", ax=only) is only
    assert [text[:9] for text in texts(only)] == [t[:9] for t in fit.topics(2, by="frex").query("topic == 2")["term"]]


def test_many_topics_are_shown_by_their_largest():
    fit = simulated(num_topics=24, num_terms=72, num_chains=1, num_draws=4)
    axes = diagnostics.plot_topics(fit, n=2)
    assert len(axes) == 20 and drawn(axes).legends[0].get_title().get_text() == "the 20 largest of 24 topics"
    axis = diagnostics.plot_topic_map(fit)
    figure = drawn(axis)
    boxes = [text.get_window_extent().padded(-1) for text in axis.texts]
    inside = axis.get_window_extent()
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])
        assert inside.x0 - 2 <= box.x0 and box.x1 <= inside.x1 + 2 and figure.bbox.height >= box.y1
    assert diagnostics.plot_correlations(fit).get_yticklabels().__len__() == 24


def test_coefficients_have_their_intervals_and_words(fit):
    """Chains that are not matched have other topics: the first is shown, and both once they are matched."""
    axis = diagnostics.plot_coefficients(fit, n=2, probability=0.5)
    drawn(axis)
    frame, words = fit.effects(probability=0.5), fit.topics(2).groupby("topic")["term"].agg(list)
    order = np.argsort(frame["mean"])
    assert [text.split(":")[0] for text in texts(axis)] == [str(k) for k in order]
    assert all(words[k][1][:10] in text for k, text in zip(order, texts(axis), strict=True))
    (lines,) = axis.collections
    found = np.array([segment[:, 0] for segment in lines.get_segments()])
    np.testing.assert_allclose(found, frame.loc[order, ["low", "high"]], rtol=1e-5)
    assert axis.get_legend() is None
    matched = diagnostics.plot_coefficients(diagnostics.align(fit))
    assert [text.get_text() for text in matched.get_legend().get_texts()] == ["chain 0", "chain 1"]
    some = diagnostics.plot_coefficients(fit, topics=[2, 0])
    assert [text.split(":")[0] for text in texts(some)] == ["0", "2"]  # the first named on top


def test_coefficients_of_classes_have_a_panel_each(of_classes):
    axes = diagnostics.plot_coefficients(of_classes)
    assert [axis.get_title() for axis in axes] == ["eta[0]", "eta[1]", "eta[2]"]
    axis = diagnostics.plot_topic_map(of_classes)
    drawn(axis)
    colours = [to_hex(colour) for colour in axis.collections[0].get_facecolors()]
    assert len(set(colours)) == 3  # each topic is for a class of its own
    one = diagnostics.plot_topic_map(of_classes, var_names="eta[1]")
    assert one.figure.axes[1].get_ylabel() == "coefficient eta[1]"


def test_distances_are_those_of_jensen_and_shannon():
    beta = np.random.default_rng(0).dirichlet(np.full(9, 0.4), 4)
    beta[0, 3] = 0
    beta[0] /= beta[0].sum()
    expected = [[jensenshannon(p, q, 2) for q in beta] for p in beta]
    np.testing.assert_allclose(topic_distances(beta), expected, atol=1e-7)


def test_distances_of_many_terms_are_of_the_leading_ones(monkeypatch):
    monkeypatch.setattr("topiczoo.diagnostics.plotting.topic_map.MOST_TERMS", 2)
    beta = np.array([[0.6, 0.3, 0.05, 0.05], [0.2, 0.7, 0.1, 0.0]])
    together = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    np.testing.assert_allclose(topic_distances(beta)[0, 1], jensenshannon(*together, 2), atol=1e-7)


def test_places_have_the_distances_they_are_given_where_a_plane_holds_them():
    places = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0], [1.0, 1.0]])
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    found, kept = classical_scaling(apart)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=-1), apart, atol=1e-9)
    assert kept == pytest.approx(1) and (np.abs(found).max(0) == found.max(0)).all()
    two, whole = classical_scaling(np.array([[0.0, 2.0], [2.0, 0.0]]))
    np.testing.assert_allclose(np.abs(two), [[1, 0], [1, 0]], atol=1e-9)
    assert whole == pytest.approx(1)


def test_the_map_has_circles_by_share_and_colour_by_coefficient(fit):
    axis = diagnostics.plot_topic_map(fit)
    drawn(axis)
    (circles,) = axis.collections
    share = fit.corpus.lengths @ fit.mean("theta", chain=0) / fit.corpus.num_tokens
    order = np.argsort(-share)
    apart = topic_distances(fit.topic_terms(0))[np.ix_(order, order)]
    found = np.asarray(circles.get_offsets())
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=-1), apart, atol=1e-6)  # three in a plane
    assert (np.diff(circles.get_sizes()) <= 0).all()
    np.testing.assert_allclose(
        np.diff(circles.get_sizes()), np.diff(share[order]) * (1500 - 60) / share.max(), rtol=1e-5
    )
    red, _, blue, _ = np.asarray(circles.get_facecolors()).T
    np.testing.assert_array_equal(red > blue, fit.mean("eta", chain=0)[order] > 0)
    assert sorted(text.get_text()[0] for text in axis.texts) == ["0", "1", "2"]


def test_pictures_of_a_chain_have_its_own_coefficients(fit):
    """Of the second chain, whose topics have other numbers than those of the first."""
    eta, share = fit.draws["eta"], fit.corpus.lengths @ fit.mean("theta", chain=1)
    axis = diagnostics.plot_topic_map(fit, chain=1)
    drawn(axis)
    red, _, blue, _ = np.asarray(axis.collections[0].get_facecolors()).T
    means = eta.mean(1)[:, np.argsort(-share)]
    np.testing.assert_array_equal(np.argsort(red - blue), np.argsort(means[1]))
    assert (np.argsort(means[0]) != np.argsort(means[1])).any()
    axis = diagnostics.plot_coefficients(fit, chain=1)
    found = [segment[:, 0] for segment in axis.collections[0].get_segments()]
    order = np.argsort(eta[1].mean(0))
    np.testing.assert_allclose(found, np.quantile(eta[1], [0.05, 0.95], axis=0).T[order], rtol=1e-5)


def test_the_largest_coefficients_are_those_farthest_from_zero_in_any_column():
    """In the order of the first column."""
    columns = {"a": np.array([0.1, -3.0, 2.0, -0.2, 0.3]), "b": np.array([-4.0, 0.0, 0.1, 0.0, 0.5])}
    panels = {name: np.stack([value - 1, value + 1])[:, None] for name, value in columns.items()}
    np.testing.assert_array_equal(leading_rows(panels, 3), [1, 0, 2])
    np.testing.assert_array_equal(leading_rows({"a": panels["a"]}, 2), [1, 2])


def test_documents_without_a_class_are_left_out_with_their_probabilities():
    chance = np.linspace(0.05, 0.95, 36)
    truth = np.where(np.arange(36) % 3 == 0, np.nan, chance > 0.5)
    prediction = Prediction(
        np.arange(36).astype(str), chance, np.zeros((2, 36)), np.zeros((1, 2, 36)), np.stack([1 - chance, chance], 1)
    )
    axis = np.ravel(diagnostics.plot_predictions(prediction, y=truth))[0]
    known = ~np.isnan(truth)
    halves = np.split(np.flatnonzero(known), 2)
    expected = [[chance[own].mean(), truth[own].mean()] for own in halves]
    np.testing.assert_allclose(axis.lines[1].get_xydata(), expected)
    assert axis.get_title(loc="left") == f"y = 1 ({int(truth[known].sum())} of 24)"


def test_correlations_are_colours_and_numbers(fit):
    axis = diagnostics.plot_correlations(fit, topics=[2, 0, 1], n=1)
    drawn(axis)
    (image,) = axis.images
    expected = fit.correlations().to_numpy()[np.ix_([2, 0, 1], [2, 0, 1])]
    np.fill_diagonal(expected, np.nan)
    np.testing.assert_allclose(np.ma.filled(image.get_array(), np.nan), expected)
    low, high = image.get_clim()
    assert low == -high and high == pytest.approx(np.nanmax(np.abs(expected)))
    assert axis.texts[0].get_text() == f"{expected[0, 1]:.2f}".replace("0.", ".", 1) and len(axis.texts) == 6
    assert [label.get_text() for label in axis.get_xticklabels()] == ["2", "0", "1"]


def test_documents_are_shares_that_fill_their_bars(fit):
    axis = diagnostics.plot_documents(fit, [3, "document 5"])
    drawn(axis)
    widths = np.array([[bar.get_width() for bar in bars] for bars in axis.containers])
    np.testing.assert_allclose(widths.sum(0), 1, atol=1e-6)
    theta = fit.mean("theta", chain=0)[[3, 5]]
    np.testing.assert_allclose(widths, theta[:, np.argsort(-theta.sum(0))].T, atol=1e-6)
    assert texts(axis) == ["document 3", "document 5"]
    many = simulated(num_topics=10, num_terms=30, num_chains=1, num_draws=4)
    axis = diagnostics.plot_documents(many)
    assert len(axis.containers) == 8 and axis.get_legend().get_texts()[-1].get_text() == "3 other topics"
    np.testing.assert_allclose(np.sum([[bar.get_width() for bar in b] for b in axis.containers], 0), 1, atol=1e-6)


def test_predicted_numbers_have_intervals(fit):
    prediction = fit.predict(fit.corpus[:20])
    y = np.asarray(fit.y[:20], float)
    axis = diagnostics.plot_predictions(prediction, y=y, probability=0.8)
    drawn(axis)
    low, high = prediction.interval(0.8).T
    inside = (low <= y) & (y <= high)
    assert f"{inside.mean():.0%} of 20 inside their 80% interval" in axis.get_title(loc="left")
    held, missed, _ = axis.lines
    np.testing.assert_allclose(held.get_xydata(), np.column_stack([prediction.mean, y])[inside])
    assert len(missed.get_xydata()) == (~inside).sum()
    segments = axis.collections[0].get_segments()
    np.testing.assert_allclose([s[:, 0] for s in segments], np.column_stack([low, high])[inside])


def test_predictions_are_in_the_units_of_the_data(fit):
    other = simulated(num_topics=3, info={"standardised": (3.0, 10.0)})
    plain, scaled = (diagnostics.plot_predictions(each).lines[0].get_xydata() for each in (fit, other))
    np.testing.assert_allclose(scaled, plain * 10 + 3, rtol=1e-5)


@pytest.mark.slow
def test_predicted_classes_are_compared_with_how_often_they_come_true(of_classes):
    axes = diagnostics.plot_predictions(of_classes)
    drawn(axes)
    prediction = of_classes.predict(of_classes.corpus)
    assert len(axes) == 3
    chance, truth = prediction.probabilities[:, 1], of_classes.y == 1
    alike = np.array_split(np.argsort(chance, kind="stable"), len(chance) // 12)
    points = axes[1].lines[1].get_xydata()
    np.testing.assert_allclose(points, [[chance[own].mean(), truth[own].mean()] for own in alike], atol=1e-6)
    assert axes[1].get_title(loc="left") == f"y = 1 ({truth.sum()} of 40)"


def test_wilson_is_the_root_of_its_equation():
    """|p - share| = z sqrt(p (1 - p) / n) at both ends, z = 1.6449 for 90%."""
    share, number = np.array([0.0, 0.3, 1.0]), np.array([12, 20, 15])
    for end in wilson(share, number):
        np.testing.assert_allclose((end - share) ** 2, 1.6448536**2 * end * (1 - end) / number, atol=1e-9)


def test_words_with_dollars_and_500_letters_are_drawn_as_they_are(fit):
    """The corpus has a term $x$; a name may be long."""
    named = diagnostics.align(fit).rename({0: "$a$ " + 500 * "b"})
    for plot in (diagnostics.plot_coefficients, diagnostics.plot_topic_map, diagnostics.plot_correlations):
        axis = np.ravel(plot(named))[0]
        figure = drawn(axis)
        shown = [text for text in figure.findobj(mpl.text.Text) if text.get_text().startswith("$a$")]
        assert shown and all(len(text.get_text()) <= 42 and not text.get_parse_math() for text in shown)
    with plt.rc_context():
        assert mpl.rcParams["axes.spines.top"]  # what the user has set stays


def test_what_cannot_be_drawn_is_refused_in_a_sentence(fit):
    plain = simulated(models.lda, num_topics=3, num_chains=1)
    one = fit_of(
        models.lda, {"beta": np.full((1, 2, 1, 5), 0.2), "theta": np.ones((1, 2, 6, 1))}, num_topics=1
    )  # fmt: skip
    mixture = simulated(models.mixture, num_topics=3, num_chains=1)
    _, axis = plt.subplots()
    for ask, said in (
        (lambda: diagnostics.plot_coefficients(plain), "The story 'lda' has no coefficients of topics"),
        (lambda: diagnostics.plot_coefficients(fit, "sigma"), "var_names has 'sigma'; the coefficients are 'eta'"),
        (lambda: diagnostics.plot_predictions(plain), "The story 'lda' was fitted without a response"),
        (lambda: diagnostics.plot_predictions(fit, fit.corpus), "corpus and y belong together"),
        (lambda: diagnostics.plot_topic_map(one), "A map shows how far topics are apart, and the fit has one"),
        (
            lambda: diagnostics.plot_topic_map(fit, var_names="x"),
            "var_names is 'x'; the columns of coefficients are 'eta'",
        ),
        (lambda: diagnostics.plot_correlations(one), "Correlations are of two topics at least"),
        (lambda: diagnostics.plot_correlations(mixture), "gives each document one topic"),
        (lambda: diagnostics.plot_topics(fit, ax=axis), "ax has 1 axes for 3 panels"),
        (
            lambda: diagnostics.plot_topics(fit, [0], ax=axis, figure_kwargs={"dpi": 9}),
            "figure_kwargs is given with ax",
        ),
        (lambda: diagnostics.plot_topics(fit, []), "topics is empty; name one at least"),
        (lambda: diagnostics.plot_documents(fit, "no such"), "documents has 'no such'; give rows from 0 to 39"),
        (lambda: diagnostics.plot_documents(fit, chain=4), "chain is 4; the fit's chains are 0 to 1"),
    ):
        with pytest.raises(ValueError, match=said):
            ask()
    with pytest.raises(TypeError, match="fit is a str; give a Fit"):
        diagnostics.plot_topics("fit")
