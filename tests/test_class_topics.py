"""Topics by class: shares, pictures, and what is refused."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from fits import fit_of
from test_margins import planted

from topiczoo.corpora import Corpus
from topiczoo.diagnostics import class_topics
from topiczoo.diagnostics.reporting.class_topics import ClassTopics
from topiczoo.inference import Fit
from topiczoo.inference.story.reading import read
from topiczoo.models import lda

matplotlib.use("agg")


def test_shares_of_known_proportions():
    found = ClassTopics(np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]), np.array(["a", "a", "b"]), ["x", "y"])
    np.testing.assert_allclose(found.shares, [[0.75, 0.25], [0.25, 0.75]])
    assert found.leading(1)[["class", "topic", "words"]].to_numpy().tolist() == [["a", 0, "x"], ["b", 1, "y"]]


def test_documents_whose_class_is_missing_are_left_out_with_their_proportions(monkeypatch):
    corpus = Corpus.from_counts(np.ones((5, 3), int), names=list("pqrst"))
    theta = {name: np.array([place / 4, 1 - place / 4]) for place, name in enumerate("pqrst")}
    monkeypatch.setattr(Fit, "transform", lambda fit, given, seed: np.stack([theta[name] for name in given.names]))
    fit = fit_of(lda, {"beta": np.array([[[[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]]])}, corpus, num_topics=2)
    found = class_topics(fit, corpus, np.array([None, "b", "a", None, "b"], object), n=1)
    np.testing.assert_allclose(found.proportions, [theta[name] for name in "qrt"])
    assert found.labels.tolist() == ["b", "a", "b"] and found.shares.loc["b", 0] == (1 / 4 + 1) / 2


@pytest.mark.slow
def test_classes_of_a_fit_have_topics_of_their_own():
    """Of a fit written down by hand, whose documents have nine tenths of their class' topic."""
    corpus, y = planted("classes", 90)
    codes = y.astype(int)
    theta = np.where(np.arange(3) == codes[:, None], 0.9, 0.05).astype(np.float32)
    beta = np.kron(np.eye(3), np.full(6, 1 / 6)).astype(np.float32)
    draws = {"theta": theta[None, None], "beta": beta[None, None]}
    fit = Fit.of(read(lda, corpus, None, {"num_topics": 3}), draws, engine="vem")
    labels = np.array(["a", "b", "c"], object)[codes]
    labels[0] = None
    found = class_topics(fit, corpus, labels)
    assert len(found.labels) == 89 and found.shares.shape == (3, 3)
    np.testing.assert_allclose(found.shares.sum(1), 1, rtol=1e-4)
    assert (np.diag(found.shares) > 0.6).all()
    assert found.leading(1)["topic"].tolist() == [0, 1, 2]
    assert len(found.plot().axes) == 3
    picture = found.plot_documents(most=50)
    assert sum(len(points.get_offsets()) for points in picture.axes[0].collections) == 50
    with pytest.raises(ValueError, match=r"labels has shape \(2,\) for 90 documents"):
        class_topics(fit, corpus, ["a", "b"])
    with pytest.raises(ValueError, match="labels are all missing"):
        class_topics(fit, corpus, [None] * 90)
