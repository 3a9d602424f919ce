"""Topics with a response that is a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from topiczoo.models import medlda, slda_glm, sstm

from .base import TopicEstimator

UNIT_SCALE = ("normal", "student_t")  # responses whose priors expect y on a unit scale


class _Regressor(RegressorMixin, TopicEstimator):
    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # where a regression on real numbers is asked of shares of words
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit counts [documents, terms] and one number a document."""
        X, y = validate_data(self, X, y, y_numeric=True, accept_sparse="csr")
        y = np.asarray(y, float)
        shift, scale = (y.mean(), y.std() or 1.0) if self._standardises() else (0.0, 1.0)
        self._fit(X, lambda corpus: (y[corpus.source_rows] - shift) / scale)
        self.fit_.info["standardised"] = float(shift), float(scale)
        return self

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The expected response of new documents in y's own units; with ``return_std`` its standard deviation as well.

        The deviation is that of the posterior predictive distribution: what is not known of topics and coefficients counts
        as well as the noise. By vem and svi it is too small: they leave out much of what is not known. ``fit_.predict`` has
        draws and intervals, which documents set aside can calibrate, in the units of ``fit_.info["standardised"]``.
        """
        corpus = self._documents(X)
        prediction = self.fit_.predict(corpus, alike=True)
        shift, scale = self.fit_.info["standardised"]
        mean = prediction.mean.astype(float) * scale + shift
        return (mean, prediction.draws.std(0).astype(float) * scale) if return_std else mean

    def _standardises(self) -> bool:
        return True


class SLDARegressor(_Regressor):
    """Supervised latent Dirichlet allocation; the story is ``models.slda_glm``, with a normal response ``models.slda``.

    A y that is normal or Student's t is standardised for the fit, and predictions are in its own units.

    Parameters
    ----------
    n_components : number of topics.
    response : "normal", "student_t", or for positive numbers and counts "poisson", "negative_binomial", "gamma",
        "inverse_gaussian", "weibull"; or a function from the predictor to a NumPyro distribution, for y as it is.
    scale : prior deviation of the topics' coefficients.
    response_weight : the power of the response's likelihood; above 1 topics serve predictions (docs/weights.md).
    alpha, gamma : Dirichlet priors of a document's proportions and of a topic's terms: numbers, or "learned".
    engine : "gibbs", "vem", "svi" or "nuts".
    engine_options : settings of the engine, e.g. ``{"num_warmup": 500, "num_samples": 500, "num_chains": 4}`` of gibbs.
    story_options : further arguments of the story.
    random_state : a whole number is the engine's seed; None draws one from NumPy's global generator.
    verbose : whether a bar shows how far the engine is.
    """

    _arguments: ClassVar = ("alpha", "gamma", "response", "scale")
    response: str | Callable

    def __init__(
        self, n_components: int = 20, *, response: str | Callable = "normal", scale: float = 2.0,
        response_weight: float = 1.0, alpha: float | str | Sequence[float] = 0.1, gamma: float | str = 0.1,
        engine: str = "gibbs", engine_options: Mapping[str, Any] | None = None,
        story_options: Mapping[str, Any] | None = None, random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return slda_glm

    def _standardises(self) -> bool:
        return self.response in UNIT_SCALE


class SSTMRegressor(_Regressor):
    """Sparse supervised topics, a response that depends on few of them; the story is ``models.sstm``.

    y is standardised for the fit, and predictions are in its own units. ``fit_.select()`` says which topics count.

    Parameters
    ----------
    prior : of the coefficients: "laplace", "horseshoe", "spike_and_slab", "dense", or a function.
    nu, sigma : scale of the coefficients, and deviation of the standardised y; None: they are drawn.

    The others are those of :class:`SLDARegressor`.
    """

    _arguments: ClassVar = ("alpha", "gamma", "prior", "nu", "sigma")

    def __init__(
        self, n_components: int = 50, *, prior: str | Callable = "laplace", nu: float | None = None,
        sigma: float | None = None, response_weight: float = 1.0, alpha: float | str | Sequence[float] = 0.1,
        gamma: float | str = 0.1, engine: str = "gibbs", engine_options: Mapping[str, Any] | None = None,
        story_options: Mapping[str, Any] | None = None, random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return sstm


class MedLDARegressor(_Regressor):
    """Max-margin supervised topics for numbers; the story is ``models.medlda``.

    y is standardised for the fit, so ``epsilon`` is in standard deviations of y; predictions are in y's own units.

    Parameters
    ----------
    margin : "regression", a normal response and a margin, or "partial", the margin alone.
    weight, epsilon : of a document's loss, and how far from its prediction y may lie without one.
    prior, nu : of the coefficients, and its scale.

    The others are those of :class:`SLDARegressor`.
    """

    _arguments: ClassVar = ("alpha", "gamma", "margin", "weight", "epsilon", "prior", "nu")

    def __init__(
        self, n_components: int = 40, *, margin: str = "regression", weight: float = 1.0, epsilon: float = 1e-3,
        prior: str | Callable = "dense", nu: float = 1.0, response_weight: float = 1.0,
        alpha: float | str | Sequence[float] = 0.1, gamma: float | str = 0.05, engine: str = "gibbs",
        engine_options: Mapping[str, Any] | None = None, story_options: Mapping[str, Any] | None = None,
        random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return medlda


class StoryRegressor(_Regressor):
    """A story of your own, ``story(corpus, y=None, *, ...)``, whose response is a number.

    Parameters
    ----------
    story : the function, or the name of a story of the zoo.
    n_components : the story's ``num_topics``; None leaves the story's own default, or its other name to ``story_options``.
    story_options : arguments of the story.
    standardise : whether the story is given y in standard units; predictions are in y's own in either case.

    The others are those of :class:`SLDARegressor`. A pickle holds the story by its name: whoever reads it must be able to
    import it from where it was defined.
    """

    _arguments: ClassVar = ()
    story: str | Callable
    standardise: bool

    def __init__(
        self, story: str | Callable, n_components: int | None = None, *, standardise: bool = False,
        response_weight: float = 1.0, engine: str = "gibbs", engine_options: Mapping[str, Any] | None = None,
        story_options: Mapping[str, Any] | None = None, random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return self.story  # type: ignore[return-value]

    def _standardises(self) -> bool:
        return self.standardise
