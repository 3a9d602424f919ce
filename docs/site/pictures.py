"""The pictures of the front page, from a fit of the simulated reviews and from results.md.

    python docs/site/pictures.py

Writes into docs/pictures: topics, coefficients and predictions of supervised LDA with ten topics (four chains of 300 sweeps
of warm-up and 300 draws, seed 0), and seconds a sweep beside tomotopy. Badges are made by badges.py.
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from measured import ROOT, cells, section

from topiczoo import corpora, diagnostics, inference, models

INTO = ROOT / "docs" / "pictures"
SPEED = "film reviews, K=50, alpha 0.1, gamma 0.05"


def save(figure, name: str) -> None:
    figure.savefig(INTO / f"{name}.svg", facecolor="white", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def of_a_fit() -> None:
    corpus, stars = corpora.load_reviews(seed=0)
    y = (stars - stars.mean()) / stars.std()
    fit = inference.gibbs(models.slda, corpus[:800], y[:800], num_topics=10, num_chains=4, seed=0)
    print(diagnostics.diagnose(fit).verdict)
    fit = diagnostics.align(fit)
    largest = fit.effects().sort_values("mean")["topic"].tolist()
    axes = diagnostics.plot_topics(fit, [largest[-1], largest[-2], largest[1], largest[0]], n=7)
    save(axes.flat[0].figure, "topics")
    save(diagnostics.plot_coefficients(fit).figure, "coefficients")
    save(diagnostics.plot_predictions(fit, corpus[800:], y[800:]).figure, "predictions")


def of_speed() -> None:
    """Bars of seconds, film reviews with 50 topics, both packages in one run."""
    told = {(row[0], row[1]): row[2] for row in cells(section(SPEED).tables[0])[1:]}
    bars = {
        "tomotopy, a sweep": told["tomotopy_speed", "seconds a sweep"],
        "topiczoo, a sweep": told["topiczoo_speed", "seconds a sweep"],
        "topiczoo, a whole iteration": told["topiczoo_speed", "seconds an iteration"],
    }
    figure, axes = plt.subplots(figsize=(6.4, 1.8), layout="constrained")
    drawn = axes.barh(list(bars), [float(value) for value in bars.values()], color=["#999999", "#0072b2", "#56b4e9"])
    axes.bar_label(drawn, padding=3)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel="seconds, 1.65 million words, 50 topics, two cores", xlim=(0, 0.5))
    save(figure, "speed")


if __name__ == "__main__":
    INTO.mkdir(exist_ok=True)
    with plt.rc_context({"svg.hashsalt": "topiczoo"}):
        of_speed()
        of_a_fit()
