"""Formulas as MathML, which browsers draw themselves: no script, nothing fetched, and readable aloud."""

import re
from html import escape

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)
SIZE = re.compile(r"\\([bB]igg?)(?![a-zA-Z])")  # of which side a delimiter is does not matter
DOTS = re.compile(r"\\dots(?![a-zA-Z])")
ACCENT = re.compile(r"\\(bar|hat|tilde|widehat) *\{([^{}]*)\}")


def mathml(node: nodes.Node, display: bool) -> str:
    # an index of an accented letter would be set below it and not beside, were the letter not one of a group
    text = ACCENT.sub(r"{\\\1{\2}{}}", SIZE.sub(r"\\\1l", DOTS.sub(r"\\ldots", node.astext())))
    try:
        return latex2mathml.tex2mathml(text, as_block=display)
    except MathError as error:
        log.warning("the formula %r cannot be MathML: %s", node.astext(), error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def inline(translator, node) -> None:
    translator.body.append(mathml(node, display=False))
    raise nodes.SkipNode


def block(translator, node) -> None:
    translator.body.append(f'<div class="formula">{mathml(node, display=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
