"""What stories are written with beside NumPyro's own words: words of documents, responses, margins, priors, arguments."""

from .arguments import BadArgument
from .words import BagOfWords, Zbar, draw_bags, draw_words

__all__ = ["BadArgument", "BagOfWords", "Zbar", "draw_bags", "draw_words"]
