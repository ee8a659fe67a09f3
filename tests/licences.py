"""Print the licences of everything that an installation includes: ``python -m tests.licences``.

``--pins FILE`` writes the same distributions with their versions.

Reads the metadata of installed distributions, without a network. Follows the run-time dependencies
and the extras with libraries that the package uses, recursively.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = ("redis", "kafka", "tls", "time", "explore")
"""Extras with libraries that the package uses; the others are for its own tests."""
ALLOWED = re.compile(
    r"MIT|MIT-0|BSD-[23]-Clause|0BSD|Apache-2\.0|PSF-2\.0|Python-2\.0|ISC|ISCL|MPL-2\.0"
)
"""SPDX identifiers of the families MIT, BSD, Apache, PSF, ISC and MPL."""
BESIDES = {
    # Code copied into numpy; both licences require nothing of its users.
    "numpy": {"Zlib", "CC0-1.0"}
}
"""Additional terms of single distributions, each with its reason."""
SAME = {
    "MIT style": "MIT",
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""SPDX identifiers of older metadata."""


@dataclass(frozen=True)
class Licence:
    """A distribution and the licence in its metadata: an SPDX expression or an empty string."""

    name: str
    version: str
    says: str


def closure() -> tuple[list[Licence], list[str]]:
    """Return all distributions that an installation with ``EXTRAS`` includes, and the missing ones."""
    root = Path(__file__).resolve().parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    waiting = [Requirement(line) for line in project["dependencies"]]
    waiting += [Requirement(line) for name in EXTRAS for line in extras[name]]
    licences: dict[str, Licence] = {}
    missing: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name in licences or name in missing or not _applies(wanted, ""):
            continue
        try:
            here = distribution(name)
        except PackageNotFoundError:
            missing.add(name)
            continue
        licences[name] = Licence(name, here.version, _says(here))
        for line in here.requires or ():
            more = Requirement(line)
            if any(_applies(more, extra) for extra in ("", *wanted.extras)):
                waiting.append(more.__class__(str(more).partition(";")[0]))
    return sorted(licences.values(), key=lambda licence: licence.name), sorted(missing)


def _applies(wanted: Requirement, extra: str) -> bool:
    return wanted.marker is None or wanted.marker.evaluate({"extra": extra})


def _says(here: Distribution) -> str:
    """Return the licence expression, else the classifiers, else a short value of the old field."""
    metadata = here.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    named = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    text = str(metadata.get("License") or "").strip()
    identifiers = [SAME[name] for name in named if name in SAME]
    if named and len(identifiers) == len(named):
        return " OR ".join(identifiers)
    return SAME.get(text, text) if "\n" not in text else ""


def _is_allowed(says: str, besides: set[str]) -> bool:
    """Return whether one of the alternatives of an expression has only terms on the list."""

    def fits(term: str) -> bool:
        return ALLOWED.fullmatch(term) is not None or term in besides

    if not re.search(r"\b(AND|OR)\b", says):
        return fits(says)
    # Let Python evaluate the expression, which then consists of and, or, True, False and parentheses.
    words = {"AND": "and", "OR": "or"}
    return bool(eval(re.sub(r"[^\s()]+", lambda f: words.get(f[0]) or str(fits(f[0])), says)))


def wrong_with(licence: Licence) -> str | None:
    """Return why a licence is not on the list; None if one of its alternatives is."""
    if not licence.says:
        return f"{licence.name} {licence.version} names no licence"
    if _is_allowed(licence.says, BESIDES.get(licence.name, set())):
        return None
    return f"{licence.name} {licence.version} is under {licence.says!r}, which is not on the list"


def main(words: list[str] | None = None) -> int:
    """Print the report; return 1 if a licence is not on the list."""
    parser = argparse.ArgumentParser(prog="python -m tests.licences", description=__doc__)
    parser.add_argument("--pins", type=Path, metavar="FILE", help="write name==version lines")
    options = parser.parse_args(words)
    licences, missing = closure()
    if options.pins is not None:
        options.pins.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{entry.name}=={entry.version}\n" for entry in licences]
        options.pins.write_text("".join(lines), encoding="utf-8")
    for licence in licences:
        print(f"{licence.name:24} {licence.version:16} {licence.says}")
    for name in missing:
        print(f"{name:24} {'not installed':16}")
    wrong = [why for entry in licences if (why := wrong_with(entry))]
    print("\n".join(wrong) or f"all {len(licences)} licences are on the list")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
