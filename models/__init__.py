"""The stories, one file each, and the vocabulary they are written in."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .additive import DEVIATIONS, background, sage_facets, sage_geo, sage_nb, sage_topics, share_of_zeros
from .categorical_mixture import mixture
from .discriminative import disclda
from .generalised import slda_glm
from .latent_dirichlet import lda
from .max_margin import medlda
from .regions import find_regions
from .sparse import COEFFICIENTS, sstm
from .supervised import slda
from .vocabulary.distributions import NormalJeffreys
from .vocabulary.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll
from .vocabulary.priors import concentration
from .vocabulary.responses import RESPONSES
from .vocabulary.words import draw_bags, draw_words

__all__ = [
    "COEFFICIENTS", "DEVIATIONS", "RESPONSES", "EpsilonInsensitive", "Hinge", "MultiClassHinge", "NormalJeffreys",
    "OneAgainstAll", "background", "concentration", "disclda", "draw_bags", "draw_words", "find_regions", "lda",
    "medlda", "mixture", "sage_facets", "sage_geo", "sage_nb", "sage_topics", "share_of_zeros", "slda", "slda_glm",
    "sstm",
]  # fmt: skip
