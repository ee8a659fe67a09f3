"""Format pieces of Markdown for the generated pages."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

HEAD = "<!-- Generated: python -m docs.generate writes this page anew. -->\n"
PACKAGE = Path(__file__).resolve().parents[2] / "pytest_fakecloud"


def inline(text: str) -> str:
    """Return a docstring as one line of Markdown."""
    return " ".join(re.sub(r"``(.+?)``", r"`\1`", text, flags=re.S).split())


def cell(text: str) -> str:
    """Escape a string for a table cell."""
    return inline(text).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a docstring."""
    found = inline((text or "").strip().partition("\n\n")[0])
    return re.split(r"(?<=\.) (?=[A-Z`])", found)[0]


def attribute_docs(kind: Any) -> dict[str, str]:
    """Return the docstring below each field of a class and its bases."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__bases__):
        if owner.__module__.startswith("pytest_fakecloud"):
            found.update(attribute_docs(owner))
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {**found, **_texts_below(body.body)}


def alias_docs(module: str) -> dict[str, str]:
    """Return the docstring below each type alias of a module."""
    file = PACKAGE / f"{module.replace('.', '/')}.py"
    return _texts_below(ast.parse(file.read_text(encoding="utf-8")).body)


def _texts_below(body: Sequence[ast.stmt]) -> dict[str, str]:
    return {
        field.target.id: str(text.value.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of the package with its path inside the package."""
    for file in sorted(PACKAGE.rglob("*.py")):
        yield file.relative_to(PACKAGE).as_posix(), ast.parse(file.read_text(encoding="utf-8"))
