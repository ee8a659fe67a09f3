"""Files of the package that are not Python."""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader


def asset(module_file: str, name: str) -> str:
    """Return the text of a file beside a module, whose ``__file__`` is ``module_file``.

    The file is read as Python reads modules, because a test may use a fake file system.
    """
    path = os.path.join(os.path.dirname(module_file), name)
    return SourceFileLoader(name, path).get_data(path).decode("utf-8").replace("\r\n", "\n")
