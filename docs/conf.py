"""Configure Sphinx: ``sphinx-build -W -b html docs build/docs``."""

from __future__ import annotations

from importlib import metadata

project = "pytest-fakecloud"
author = "The pytest-fakecloud maintainers"
try:
    release = metadata.version("pytest-fakecloud")
except metadata.PackageNotFoundError:
    release = ""

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["generate", "_build"]
smartquotes = False  # Quoted words are options and values here.

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autoclass_content = "class"
add_module_names = False
python_maximum_signature_line_length = 88

copybutton_prompt_text = "$ "
pygments_style = "tango"
pygments_dark_style = "native"

html_theme = "furo"
html_title = f"pytest-fakecloud {release}".strip()
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

# Only external links need the network; every strict build checks those within the site.
linkcheck_ignore = [r"http://127\.0\.0\.1.*", r"https://[\w.-]*\.(test|example|example\.com)(/.*)?"]
