"""From a posterior to checks, metrics and a report; knows no model and no engine's internals."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .checks.calibration import Calibration, calibrate, geweke
from .checks.invariants import invariants
from .checks.response_checks import check_response
from .checks.topic_numbers import TopicNumbers, compare_topics
from .checks.word_checks import WordCheck, check_words
from .convergence.alignment import Alignment, align
from .convergence.diagnosis import Diagnosis, diagnose
from .plotting.coefficients import plot_coefficients
from .plotting.correlations import plot_correlations
from .plotting.documents import plot_documents
from .plotting.predictions import plot_predictions
from .plotting.topic_map import plot_topic_map
from .plotting.topics import plot_topics
from .reporting.class_topics import ClassTopics, class_topics
from .reporting.report import report
from .scoring.held_out import HeldOut, perplexity
from .scoring.pointwise import with_log_likelihood
from .scoring.predictive_scores import scores
from .scoring.topic_quality import coherence, diversity, entropy

__all__ = [
    "Alignment", "Calibration", "ClassTopics", "Diagnosis", "HeldOut", "TopicNumbers", "WordCheck", "align", "calibrate",
    "check_response", "check_words", "class_topics", "coherence", "compare_topics", "diagnose", "diversity", "entropy",
    "geweke", "invariants", "perplexity", "plot_coefficients", "plot_correlations", "plot_documents", "plot_predictions",
    "plot_topic_map", "plot_topics", "report", "scores", "with_log_likelihood",
]  # fmt: skip
