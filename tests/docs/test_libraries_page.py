"""Check that the rows of the libraries that were tried are whole, and that each has its test."""

from __future__ import annotations

import ast
import re

import pytest

from .blocks import DOCS

if not DOCS.exists():
    pytest.skip("an installed package has no docs folder", allow_module_level=True)

from docs.generate.libraries import PYTHON, RESULTS, TRIALS, libraries


def test_every_row_is_whole() -> None:
    for rows in libraries().values():
        names = [row.name.lower() for row in rows]
        assert names == sorted(names)
        for row in rows:
            assert row.works in RESULTS, row
            assert row.works == "yes" or row.differs, f"{row.name}: what differs?"
            whole = row.version and row.connects and row.tried
            assert row.works == "not tried" or whole, f"{row.name}: what was tried?"


def test_every_row_has_its_test_and_every_test_its_row() -> None:
    rows = libraries()
    module = ast.parse((TRIALS / "test_libraries.py").read_text(encoding="utf-8"))
    functions = {
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    named = {test for row in rows[PYTHON] for test in row.tests}
    assert all(row.tests for row in rows[PYTHON])
    assert named - functions == set()
    script = (TRIALS / "js_libraries/libraries.test.mjs").read_text(encoding="utf-8")
    tests = set(re.findall(r'^(?:test|describe)\("([^"]+)"', script, re.M))
    tests |= set(re.findall(r'\["(@[\w/-]+)", \w+\]', script))
    [language] = rows.keys() - {PYTHON}
    assert {row.name for row in rows[language] if row.works != "not tried"} == tests
    assert functions - named == set()
