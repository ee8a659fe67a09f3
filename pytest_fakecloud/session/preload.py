"""Imports of everything that fakes may need, for tests that fake the file system."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from .. import __path__

NOT_OF_A_TEST = ("__main__", "cli", "kafka", "redis", "standalone", "support", "tls", "verify")
"""Modules that ``import_fakes()`` leaves out: tests only need them with a library or a server."""


IMPORTED_LATER = (
    "decimal",
    "difflib",
    "email.utils",
    "fractions",
    "jwt",
    "ssl",
    "sysconfig",
    "zoneinfo",
)
"""Modules that functions of this package import when they are first called."""


def import_fakes() -> None:
    """Import every module that fakes may need.

    For tests that fake the file system: a module imported while files are faked would keep the
    faked objects and be forgotten afterwards, and some modules cannot be imported twice.
    """
    for found in walk_packages(__path__, f"{__package__.partition('.')[0]}."):
        if not any(word in NOT_OF_A_TEST for word in found.name.split(".")):
            import_module(found.name)
    for name in IMPORTED_LATER:
        import_module(name)
