"""How Sphinx builds the documentation: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

from loopwright.version import __version__  # noqa: E402 (needs the path)

project = "loopwright"
author = "the authors of loopwright"
copyright = "the authors of loopwright; Apache-2.0"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "extension.directives",
]
exclude_patterns = ["extension", "pictures", "static"]
# Lines of a log are shown shortened, with "..." where JSON has no such thing; and a facade has
# classes of the names that they stand for, so that a name may mean several.
suppress_warnings = ["misc.highlighting_failure", "ref.python"]

# `name` in a docstring is a link where there is such an object, else it is shown as code.
default_role = "py:obj"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"loopwright {release}"
html_static_path = ["static"]
html_css_files = ["nests.css"]
html_show_sourcelink = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
pygments_dark_style = "monokai"
