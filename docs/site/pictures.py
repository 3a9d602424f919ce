"""The pictures of the front page, from a fit of the simulated reviews.

    python docs/site/pictures.py

Writes into docs/pictures: topics, coefficients and predictions of supervised LDA with ten topics (four chains of 300 sweeps
of warm-up and 300 draws, seed 0). Badges are made by badges.py, the picture of speed by benchmarks/speed_picture.py.
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from measured import ROOT

from topiczoo import corpora, diagnostics, inference, models

INTO = ROOT / "docs" / "pictures"


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


if __name__ == "__main__":
    INTO.mkdir(exist_ok=True)
    with plt.rc_context({"svg.hashsalt": "topiczoo"}):
        of_a_fit()
