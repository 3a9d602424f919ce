"""Pictures of the report: marks stand where the numbers say, and names in them stay text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from topiczoo.diagnostics.drawing import chains, responses
from topiczoo.diagnostics.drawing.charts import Scale, chart, dots, line, plain, short, span_of, ticks
from topiczoo.diagnostics.drawing.forest import forest, sizes
from topiczoo.diagnostics.drawing.map import HEIGHT, WIDTH, centre, topic_map
from topiczoo.diagnostics.drawing.responses import GRID, calibration, distribution, of_class, pit, scatter, uniform_band

RNG = np.random.default_rng(0)
TURNED = "\u202e<b>\"'&\u2067"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3.2, 9, [-2.5, 0, 2.5, 5, 7.5]),
        (1e6, 1e6 + 5, [1e6 + k for k in range(6)]),
    ],
)
def test_ticks_are_round_numbers_between_the_ends(low, high, expected):
    np.testing.assert_allclose(ticks(low, high, 5), expected, atol=1e-12)
    assert [short(value) for value in (0.25, -2.0, 1.5e-7, 200000.0)] == ["0.25", "−2", "1.5e−7", "2e5"]


def test_marks_stand_where_the_numbers_say_and_stop_where_one_is_missing():
    svg = chart([line([0, 1, 2, 3], [0, 1, np.nan, 3])], "told", x=(0, 3), y=(0, 3), size=(100, 100))
    drawn = re.search(r'class="line c0" d="(.*?)"', svg)[1]
    across, up = Scale(0, 3, 44, 92), Scale(0, 3, 80, 8)
    expected = "".join(f"{pen}{across(k):.1f} {up(k):.1f}" for pen, k in zip("MLM", (0, 1, 3), strict=True))
    assert drawn == expected
    assert chart([dots([1], [1])], "told", x=(1, 1), y=(np.nan, np.inf))  # no room between the ends
    assert span_of([np.nan]) == (0.0, 1.0)


def test_names_in_pictures_are_text_that_turns_nothing():
    svg = chart([], TURNED, x=(0, 1), y=(0, 1), x_name=TURNED, y_name=TURNED)
    page = ElementTree.fromstring(svg)
    assert page.get("aria-label") == "<b>\"'&" and plain("a\nb\x0bc" + "d" * 9, 8) == "a b cdd…"
    made = [topic_map(np.eye(3), np.ones(3), [TURNED] * 3, [TURNED] * 3, {TURNED: np.arange(3.0), "b": np.ones(3)})]
    made += [topic_map(np.eye(3), np.ones(3), [TURNED] * 3, [TURNED] * 3, {TURNED: np.arange(3.0)})]
    parts = [part for each in made for part in each[:2]]
    parts += [forest({TURNED: np.ones((1, 5, 3)), "b": np.ones((1, 5, 3))}, [TURNED] * 3, [0, 1, 2], TURNED)]
    parts += [sizes(np.ones(3), [TURNED] * 3, [0, 1, 2], TURNED)]
    for part in parts:
        ElementTree.fromstring(part)
        assert ("\u202e" not in part and "<b>" not in part and "&lt;b&gt;" in part) or 'class="key"' in part


def rows_of(made):
    return [
        [float(value) for value in re.findall(r"[MH]([\d.]+)", bar)]
        for bar in re.findall(r'd="(M\d+ [\d.]+H\d+)"', made)
    ]


def test_a_forest_has_each_chains_interval():
    draws = RNG.normal([[[-2.0, 1.0]], [[-2.5, 1.5]]], 0.3, (2, 400, 2))
    made = forest({"eta": draws}, ["a", "b"], [1, 0], "told")
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    least, most = min(low.min(), 0), max(high.max(), 0)
    scale = Scale(least - 0.04 * (most - least), most + 0.04 * (most - least), 0, 1000)
    expected = [[scale(low[chain, topic]), scale(high[chain, topic])] for topic in (1, 0) for chain in (0, 1)]
    np.testing.assert_allclose(rows_of(made), expected, atol=0.51)
    assert made.index(">b<") < made.index(">a<")


def circles(made):
    page = ElementTree.fromstring(made.svg)
    nodes = {int(node.get("data-topic")): list(node) for node in page.iter("g")}
    return {topic: parts[1:3] for topic, parts in nodes.items()}


def test_the_map_has_near_what_is_alike_and_areas_by_shares():
    beta = RNG.dirichlet(np.full(30, 0.2), 4)
    beta[3] = 0.9 * beta[0] + 0.1 * beta[1]
    usage = np.array([0.4, 0.3, 0.2, 0.1])
    made = topic_map(beta, usage, list("0123"), ["two words"] * 4, {})
    found = circles(made)
    places = np.array([[float(found[k][0].get(name)) for name in ("cx", "cy", "r")] for k in range(4)])
    np.testing.assert_allclose(places[:, 2] ** 2 / places[0, 2] ** 2, usage / usage[0], rtol=0.02)
    apart = np.linalg.norm(places[:, None, :2] - places[None, :, :2], axis=-1) + 1e6 * np.eye(4)
    assert apart[3].argmin() == 0 and apart[0].argmin() == 3
    assert (places[:, :2] - places[:, 2:] >= 0).all() and (places[:, :2] + places[:, 2:] <= [WIDTH, HEIGHT]).all()
    assert [found[k][1].get("class") for k in range(4)] == [f"topic t{k}" for k in range(4)]


def test_colours_of_the_map_are_the_coefficients():
    beta, usage = RNG.dirichlet(np.full(30, 0.2), 3), np.array([0.5, 0.25, 0.25])
    found = circles(topic_map(beta, usage, list("012"), [""] * 3, {"eta": np.array([-1.0, 0.5, 2.0])}))
    assert [found[k][1].get("class") for k in range(3)] == ["cool", "warm", "warm"]
    assert [float(found[k][1].get("fill-opacity")) for k in range(3)] == [0.5, 0.25, 1.0]
    # where all have one sign the mean by words has no colour
    assert centre(np.array([1.0, 2.0, 3.0]), usage) == 1.75 and centre(np.array([-1.0, 2.0, 3.0]), usage) == 0
    found = circles(topic_map(beta, usage, list("012"), [""] * 3, {"a": np.array([1, 0, 0]), "b": np.array([0, 2, 3])}))
    assert [found[k][1].get("class") for k in range(3)] == ["f0", "f1", "f1"]


@pytest.mark.parametrize("number", [2, 200])
def test_a_map_of_two_topics_and_of_many_stays_in_its_frame(number):
    beta = RNG.dirichlet(np.full(300, 0.05), number)
    found = circles(
        topic_map(beta, RNG.dirichlet(np.ones(number)), [str(k) for k in range(number)], ["a b"] * number, {})
    )
    assert len(found) == number
    places = np.array([[float(parts[0].get(name)) for name in ("cx", "cy", "r")] for parts in found.values()])
    assert (places[:, :2] - places[:, 2:] >= 0).all() and (places[:, :2] + places[:, 2:] <= [WIDTH, HEIGHT]).all()


def test_places_among_predictions_are_uniform_whatever_the_response():
    """Right places are uniform; NumPy's numbers stay, so that the limits say what the test would notice."""
    draws = RNG.normal(size=(200, 1000))
    numbers = pit(RNG.normal(size=1000), draws)
    counts = pit(RNG.poisson(0.7, 1000).astype(float), RNG.poisson(0.7, (200, 1000)).astype(float))
    half = uniform_band(1000)
    for places in (numbers, counts):
        ecdf = np.searchsorted(np.sort(places), GRID, side="right") / 1000
        assert (np.abs(ecdf - GRID) <= half).all()
    beyond = pit(np.full(1000, 9.0), draws)
    assert (beyond >= 200 / 201).all() and (beyond <= 1).all()
    outside = [
        (np.abs(np.searchsorted(np.sort(RNG.random(100)), GRID, side="right") / 100 - GRID) > uniform_band(100)).any()
        for _ in range(300)
    ]
    assert np.mean(outside) < 0.04  # 1% by design; more than four standard errors above


def test_responses_are_drawn_with_what_misses_marked():
    observed, mean = np.array([0.0, 1.0, 5.0]), np.array([0.1, 0.9, 2.0])
    svg = scatter("y", observed, mean, mean - 1, mean + 1)
    assert svg.count("h0") == 3 and re.search(r'class="dots c1".*?d="(.*?)"', svg)[1].count("M") == 1
    draws = RNG.normal(size=(50, 30))
    for made in (
        distribution("y", draws[0], draws), calibration("y", pit(draws[0], draws)),
        calibration("y", pit(draws[0], draws), coverage=True), of_class("a", draws[0] > 0, np.linspace(0, 1, 30)),
    ):  # fmt: skip
        ElementTree.fromstring(made)


@pytest.fixture
def marks(monkeypatch):
    """Pictures as their marks: what kind each is and the numbers that it is drawn with."""

    def noted(kind):
        return lambda *numbers, **_: (kind, *(np.asarray(part, float) for part in numbers if not isinstance(part, str)))

    for room in (responses, chains):
        for kind in {"line", "band", "dots", "bars", "spans"} & vars(room).keys():
            monkeypatch.setattr(room, kind, noted(kind))
        monkeypatch.setattr(room, "chart", lambda marks, *_, **told: {"marks": marks, **told})


def test_shares_up_to_a_number_stand_in_a_band_of_predicted_corpora(marks):
    """Of nineteen corpora that are known the band of 90% leaves out the lowest and the highest, or nearly."""
    observed = np.array([0.0, 1.0, 1.0, 3.0])
    draws = np.arange(19.0)[:, None] / 6 + np.array([0.0, 0.0, 1.0, 4.0])
    (_, grid, low, high), (_, same, own) = responses.distribution("y", observed, draws)["marks"]
    each = (draws[:, :, None] <= grid).mean(1)
    np.testing.assert_allclose(low, np.quantile(each, 0.05, axis=0))
    np.testing.assert_allclose(high, np.quantile(each, 0.95, axis=0))
    np.testing.assert_allclose(own, (observed[:, None] <= grid).mean(0))
    assert (high - low).max() > 0.5 and own[-1] == 1 and same[0] < 0 < observed.max() < same[-1]


def test_calibration_is_the_share_of_places_or_of_central_intervals_up_to_a_level(marks):
    places = RNG.beta(2, 2, 150)  # too wide intervals: responses lie in the middle
    (_, _, below, above), (_, grid, found) = responses.calibration("y", places)["marks"]
    np.testing.assert_allclose(found, (places[:, None] <= grid).mean(0) - grid)
    np.testing.assert_allclose([below, above], [-uniform_band(150), uniform_band(150)])
    np.testing.assert_allclose(above / above[49], np.sqrt(grid * (1 - grid)) * 2)  # as the deviation of a share
    (_, grid, found) = responses.calibration("y", places, coverage=True)["marks"][1]
    inside = [((places >= 0.5 - level / 2) & (places <= 0.5 + level / 2)).mean() - level for level in grid]
    np.testing.assert_allclose(found, inside, atol=1e-9)
    assert found[40:60].min() > 0.05


def test_places_among_few_draws_are_uniform_as_well():
    """Nine draws leave ten rooms, the outermost of which have no end."""
    places = pit(RNG.normal(size=2000), RNG.normal(size=(9, 2000)))
    ecdf = np.searchsorted(np.sort(places), GRID, side="right") / 2000
    assert (np.abs(ecdf - GRID) <= 1.5 * uniform_band(2000)).all()


def test_documents_of_like_probability_stand_together(marks):
    chance = RNG.permutation(np.linspace(0.01, 0.79, 60))
    truth = chance > 0.4
    bars, _, spans, curve, _ = responses.of_class("a", truth, chance)["marks"]
    order = np.argsort(chance).reshape(5, 12)
    np.testing.assert_allclose(curve[1], chance[order].mean(1))
    np.testing.assert_allclose(curve[2], truth[order].mean(1))
    assert (spans[2] < curve[2] + 1e-9).all() and (spans[3] > curve[2] - 1e-9).all()
    often = np.array([((chance >= left) & (chance < left + 0.05)).sum() for left in np.arange(20) / 20])
    np.testing.assert_allclose(bars[3], 0.2 * often / often.max())


def test_chains_are_drawn_from_their_first_draw_to_their_last(marks):
    values = np.cumsum(RNG.normal(size=(2, 1001)), 1)
    for chain, (_, places, drawn) in enumerate(chains.trace("lp", values)["marks"]):
        assert len(places) == 300 and places[[0, -1]].tolist() == [0, 1000] and np.diff(places).max() <= 4
        np.testing.assert_array_equal(drawn, values[chain, places.astype(int)])
    whole, half = (picture["marks"][0] for picture in chains.objective(np.arange(1000.0) ** 2, "bound", "step"))
    assert whole[1][[0, -1]].tolist() == [0, 999] and half[1][[0, -1]].tolist() == [500, 999]
    np.testing.assert_array_equal(half[2], half[1] ** 2)


def test_ranks_of_chains_that_are_alike_stay_in_their_band():
    """A chain's ranks are a part of all ranks: of two chains they spread by half the variance of independent ones."""
    grid, half = chains.rank_band(2, 500)
    outside, spread = 0, []
    for _ in range(200):
        found = chains.rank_differences(RNG.normal(size=(2, 500)), grid)
        np.testing.assert_allclose(found[0], -found[1], atol=1e-9)
        outside += (np.abs(found) > half).any()
        spread.append(found[0, 49])
    assert outside <= 10  # 2 expected
    assert np.var(spread) == pytest.approx(0.25 / 500 / 2, rel=0.4)
    factor = half / np.sqrt(grid * (1 - grid) / 500 / 2)
    np.testing.assert_allclose(factor, factor[0], rtol=0.01)
    assert 2.8 < factor[0] < 4.2  # of the largest of a hundred places, 99 times in 100


def test_sizes_are_bars_as_long_as_shares_and_say_them():
    made = sizes(np.array([0.1, 0.4, 0.2]), ["a", "b", "c"], [1, 2], "told")
    assert re.findall(r"M0 4H(\d+)V", made) == ["1000", "500"]
    assert re.findall(r"([\d.]+)%</span>", made) == ["40.0", "20.0"]
