"""How Sphinx builds the site. Nothing is fetched: formulas are MathML, notebooks keep outputs, fonts are the reader's."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the extension lies

project = "topiczoo"
author = "topiczoo developers"
copyright = "topiczoo developers, Apache-2.0"
version = release = version_of("topiczoo")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "mathml"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["benchmarks/reference_posteriors"]
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*")]  # docstrings describe types in words

html_theme = "furo"
html_title = "topiczoo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1d4f91", "color-brand-content": "#1d4f91"},
    "dark_css_variables": {"color-brand-primary": "#8ab8f0", "color-brand-content": "#8ab8f0"},
}
# both pass 4.5 to 1 against the theme's code backgrounds; the theme's own light style does not
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # the default is a script from a CDN
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
suppress_warnings = ["mystnb.unknown_mime_type"]

default_role = "literal"  # docstrings say `name`
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature has them, by their names in the code
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # what NumPyro and scikit-learn say of their methods is theirs to show
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
