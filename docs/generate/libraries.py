"""Generate the page of the libraries that were tried, from ``tests/clients/libraries.toml``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .markdown import HEAD, table

TRIALS = Path(__file__).parents[2] / "tests" / "clients"
PYTHON = "Python"
_HEAD = f"""\
{HEAD}
# Libraries that were tried

Libraries that others wrote for Redis or Upstash, unmodified, on the fakes: the version that was
tried, how it connects, what the trial does, and what differs from the real service or has to be known
in a test. The [cookbook](../cookbook/libraries.md) has complete tests with task queues.
"""
_AGAIN = """
## Try them again

The trials are tests of the repository. Those of the Python libraries skip a library that is not
installed:

```console
$ pip install saq
$ python -m pytest -W ignore tests/clients/test_libraries.py -k saq
```

The JavaScript libraries run with `kv_server` in both dialects. `tests/clients/js_libraries/package.json`
has their versions:

```console
$ npm install --legacy-peer-deps --prefix tests/clients/js_libraries
$ python -m pytest tests/clients/test_js_libraries.py
```
"""
RESULTS = {
    "yes": "works.",
    "in part": "works in part.",
    "no": "does not work.",
    "not tried": "not tried.",
}


@dataclass(frozen=True)
class Library:
    """A library that was tried, or could not be."""

    name: str
    connects: str = ""
    tried: str = ""
    version: str = ""
    works: str = "yes"
    differs: str = ""
    tests: tuple[str, ...] = ()


def libraries() -> dict[str, list[Library]]:
    """Return the libraries by language."""
    rows = tomllib.loads((TRIALS / "libraries.toml").read_text(encoding="utf-8"))
    pinned = json.loads((TRIALS / "js_libraries/package.json").read_text(encoding="utf-8"))
    versions: dict[str, str] = pinned["dependencies"]
    return {
        language: [
            Library(
                **{
                    "version": versions.get(row["name"], ""),
                    **row,
                    "tests": tuple(row.get("tests", ())),
                }
            )
            for row in group
        ]
        for language, group in rows.items()
    }


def page() -> str:
    """Return the page as Markdown."""
    return "".join([_HEAD, *_tables(), _AGAIN])


def _tables() -> Iterator[str]:
    for language, rows in libraries().items():
        yield f"\n## {language}\n\n"
        yield table(
            ("Library", "Connects with", "Tried", "Result"),
            ((f"{row.name} {row.version}", row.connects, row.tried, _result(row)) for row in rows),
        )


def _result(row: Library) -> str:
    return " ".join(filter(None, (f"**{RESULTS[row.works]}**", row.differs)))
