"""Tests that fake the file system with pyfakefs, and also use the fakes.

While files are faked, ``open`` and ``os`` are pyfakefs's in every module. A module that is imported
then keeps the faked objects, and when the fixture ends, pyfakefs removes it from ``sys.modules``. The
fakes import most modules late, and some of these (NumPy) cannot be imported twice. So before such a
test, all of them are imported.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from .. import __path__

NOT_OF_A_TEST = ("__main__", "cli", "real_kafka", "real_redis", "standalone", "verify")
"""Modules that ``import_fakes()`` leaves out: tests only need them with a library or a server."""
IMPORTED_LATER = ("cronsim", "jwt")
"""Libraries that functions of this package import when they are first called."""


def import_fakes() -> None:
    """Import every module that fakes may need."""
    for module in walk_packages(__path__, f"{__package__.partition('.')[0]}."):
        if not any(word in NOT_OF_A_TEST for word in module.name.split(".")):
            import_module(module.name)
    for name in IMPORTED_LATER:
        import_module(name)
