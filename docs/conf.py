"""Configure Sphinx: ``sphinx-build -W -b html docs build/docs``."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import inspect
import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_fakecloud
from pytest_fakecloud import _PUBLIC_NAMES
from pytest_fakecloud.core.settings import Settings, settings_of

if TYPE_CHECKING:
    from sphinx.application import Sphinx

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
toc_object_entries_show_parents = "hide"
add_module_names = False
python_maximum_signature_line_length = 88

copybutton_prompt_text = "$ "
pygments_style = "tango"
pygments_dark_style = "native"

html_theme = "furo"
html_title = f"pytest-fakecloud {release}".strip()
html_static_path = ["_static"]
html_extra_path = ["llms.txt"]
html_css_files = ["site.css"]
html_js_files = [("tables.js", {"defer": "defer"})]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

# Only external links need the network; every strict build checks those within the site.
linkcheck_ignore = [r"http://127\.0\.0\.1.*", r"https://[\w.-]*\.(test|example|example\.com)(/.*)?"]


def setup(app: Sphinx) -> None:
    """Improve the signatures of the API pages; Sphinx calls this function."""
    app.connect("autodoc-process-signature", _signature)


def _signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str | None, Any] | None:
    """Write defaults as code, and omit constructors that need an object of the fakes' own."""
    if signature is None:
        return None
    if what in ("class", "exception"):
        if any(map(_is_internal, inspect.signature(value).parameters.values())):
            return "", returns
        if issubclass(value, Settings):
            defaults = {name: setting.default for name, setting in settings_of(value).items()}
            signature = (
                f"(*, {', '.join(f'{name}={default!r}' for name, default in defaults.items())})"
            )
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                if field.init and field.default_factory is not dataclasses.MISSING:
                    default = repr(field.default_factory())
                    signature = signature.replace("<factory>", default, 1)
    return signature, returns


def _is_internal(parameter: inspect.Parameter) -> bool:
    required = parameter.default is inspect.Parameter.empty
    return required and not _INTERNAL.isdisjoint(re.findall(r"\w+", str(parameter.annotation)))


_INTERNAL = {
    node.name
    for file in Path(pytest_fakecloud.__file__).parent.rglob("*.py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body
    if isinstance(node, ast.ClassDef)
} - {*_PUBLIC_NAMES, *dir(collections.abc), "Path"}
"""The classes of the package that cannot be imported from its top level."""
