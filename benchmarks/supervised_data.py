"""Ten small simulated corpora with responses, of documents so short that every assignment of their topics can be listed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from topiczoo.corpora import Corpus

FILES = Path(__file__).resolve().parent / "supervised_references"
TRUE_ALPHA = 0.5  # where it is learned
CLASSES = ("ordered", "softmax")  # y from 1 in the files, as in Stan, from 0 in a story


@dataclasses.dataclass(frozen=True)
class Design:
    """A posterior: which story with which arguments, the same in a density's words, and the corpus to simulate."""

    story: str
    response: str
    seed: int
    eta: tuple  # what the responses are simulated with
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the story
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)  # in the density and in the file of the data
    coefficients: str = "normal"
    covariate: bool = False
    num_topics: int = 2
    alpha: float | str = 0.7
    gamma: float = 1.0
    num_terms: int = 5
    num_documents: int = 16
    longest: int = 6

    @property
    def learned(self) -> bool:
        return self.alpha == "learned"

    @property
    def columns(self) -> tuple[int, ...]:
        """Of eta, beside topics."""
        return (int(self.numbers["C"]),) if self.response == "softmax" else ()


DESIGNS = {
    "slda_normal": Design("slda", "normal", 4, (1.5, -1.0), numbers={"scale": 2.0}),
    "slda_learned_alpha": Design(
        "slda", "normal", 8, (1.5, -1.0), numbers={"scale": 2.0, "alpha_mean": 0.1}, alpha="learned",
    ),
    "slda_glm_poisson": Design(
        "slda_glm", "poisson", 13, (1.8, -0.3), {"response": "poisson", "scale": 1.5}, {"scale": 1.5}
    ),
    "slda_glm_logit": Design(
        "slda_glm", "logit", 9, (2.0, 0.0, -2.0), {"response": "logit", "scale": 2.0}, {"scale": 2.0}, num_topics=3,
        num_documents=20, longest=4,
    ),
    "slda_glm_student_t": Design(
        "slda_glm", "student_t", 15, (1.5, -1.0),
        {"response": "student_t", "options": {"df": 4.0}, "covariates": ["x"], "scale": 2.0}, {"scale": 2.0, "df": 4.0},
        covariate=True,
    ),
    "slda_glm_ordered": Design(
        "slda_glm", "ordered", 24, (2.0, -2.0), {"response": "ordered", "options": {"num_classes": 3}, "scale": 2.0},
        {"scale": 2.0, "cut_scale": 2.0, "C": 3},
    ),
    "slda_glm_softmax": Design(
        "slda_glm", "softmax", 18, ((2.0, 0.0, -1.0), (-1.0, 1.0, 1.5)),
        {"response": "softmax", "outputs": 3, "scale": 1.5}, {"scale": 1.5, "C": 3}, num_terms=4,
    ),
    "sstm_normal": Design("sstm", "normal", 21, (1.5, 0.0), coefficients="laplace"),
    "sstm_probit": Design(
        "sstm", "probit", 27, (1.5, -1.5), {"response": "probit", "nu": 1.0}, {"nu": 1.0}, coefficients="laplace"
    ),
    "medlda_partial": Design(
        "medlda", "partial", 30, (1.5, -1.0), {"margin": "partial", "weight": 2.0, "epsilon": 0.25, "nu": 1.5},
        {"scale": 1.5, "weight": 2.0, "epsilon": 0.25},
    ),
}  # fmt: skip


def _ordered(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return 1 + (rng.random(len(x))[:, None] < expit(x[:, None] - np.array([-0.8, 0.8]))).sum(1)


def _softmax(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return np.array([1 + rng.choice(x.shape[1], p=row) for row in softmax(x, 1)])


DRAWN: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "normal": lambda rng, x: np.round(rng.normal(x, 0.4), 3),
    "student_t": lambda rng, x: np.round(x + 0.4 * rng.standard_t(4, len(x)), 3),
    "partial": lambda rng, x: np.round(x + rng.laplace(0, 0.4, len(x)), 3),
    "poisson": lambda rng, x: rng.poisson(np.exp(x)),
    "logit": lambda rng, x: (rng.random(len(x)) < expit(x)).astype(int),
    "probit": lambda rng, x: (rng.normal(x) > 0).astype(int),
    "ordered": _ordered,
    "softmax": _softmax,
}


def simulate(design: Design) -> dict[str, Any]:
    """The data as the files have them, in the names of the Stan program: words, documents and classes from 1."""
    rng = np.random.default_rng(design.seed)
    num_topics, num_terms = design.num_topics, design.num_terms
    phi = rng.dirichlet(np.full(num_terms, 0.5), num_topics)
    theta = rng.dirichlet(np.full(num_topics, TRUE_ALPHA if design.learned else design.alpha), design.num_documents)
    lengths = rng.integers(3, design.longest + 1, design.num_documents)
    doc = np.repeat(np.arange(design.num_documents), lengths)
    z = np.array([rng.choice(num_topics, p=theta[d]) for d in doc])
    w = np.array([rng.choice(num_terms, p=phi[k]) for k in z])
    zbar = np.zeros((design.num_documents, num_topics))
    np.add.at(zbar, (doc, z), 1 / lengths[doc])
    x = zbar @ np.array(design.eta)
    data: dict[str, Any] = {"K": num_topics, "V": num_terms, "M": design.num_documents, "N": len(w)}
    order = np.lexsort((w, doc))
    data |= {"w": (w[order] + 1).tolist(), "doc": (doc[order] + 1).tolist()}
    if design.covariate:
        data["x"] = np.round(rng.normal(size=design.num_documents), 3).tolist()
        x = x + 0.8 * np.array(data["x"])
    data["y"] = DRAWN[design.response](rng, x).tolist()
    if not design.learned:
        data["alpha"] = [design.alpha] * num_topics
    return data | {"gamma": [design.gamma] * num_terms} | design.numbers


def load(name: str) -> dict[str, Any]:
    """The data of a posterior, from its file."""
    return json.loads((FILES / f"{name}.data.json").read_text())


def corpus_of(design: Design, data: dict[str, Any]) -> tuple[Corpus, np.ndarray]:
    """Documents and responses for the engines."""
    counts = np.zeros((data["M"], data["V"]), int)
    np.add.at(counts, (np.array(data["doc"]) - 1, np.array(data["w"]) - 1), 1)
    covariates = {"x": np.array(data["x"])} if design.covariate else None
    return Corpus.from_counts(counts, covariates=covariates), np.array(data["y"], float) - (design.response in CLASSES)


def arguments_of(design: Design) -> dict[str, Any]:
    """All arguments of the story."""
    return {"num_topics": design.num_topics, "alpha": design.alpha, "gamma": design.gamma, **design.arguments}
