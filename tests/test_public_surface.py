"""The public surface does not change unnoticed, and its types are checked in use."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pytest_fakecloud
from pytest_fakecloud import Handle, ServiceError, plugin

from .surface import FILE, NAMES_FILE, public_names, surface

ROOT = Path(__file__).parent.parent


def test_the_surface_is_as_written() -> None:
    written = FILE.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(written, surface().splitlines(), lineterm="", n=0))
    assert not changes, (
        "the public surface is another one. If it is meant to be, write it anew with\n"
        "    python -m tests.surface\n"
        "and say so in the changelog:\n" + "\n".join(changes[2:200])
    )


def test_the_module_of_each_name_is_as_type_checkers_see_it() -> None:
    assert NAMES_FILE.read_text(encoding="utf-8") == public_names(), "run `python -m tests.surface`"


def test_what_a_client_is_refused_has_one_base() -> None:
    for name in ("CommandError", "RestError", "VectorError", "BrokerError", "QueueError"):
        assert issubclass(getattr(pytest_fakecloud, name), ServiceError)


def test_the_names_are_offered_for_completion() -> None:
    assert set(pytest_fakecloud.__all__) <= set(dir(pytest_fakecloud))


def test_importing_the_package_imports_none_of_it() -> None:
    code = (
        "import sys, pytest_fakecloud\n"
        "print([name for name in sys.modules if name.startswith('pytest_fakecloud.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


USE = Path(__file__).parent / "typed_use.py"


def mypy_errors(tmp_path: Path) -> str:
    pytest.importorskip("mypy")
    # With the options of a run on the package, whose cache saves nine tenths of the time.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary"),
            *("--config-file", str(ROOT / "pyproject.toml"), str(USE)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def pyright_errors(tmp_path: Path) -> str:
    pytest.importorskip("pyright")
    shutil.copy(USE, tmp_path)
    settings = {"typeCheckingMode": "strict", "include": [USE.name], "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("errors", [mypy_errors, pyright_errors])
def test_type_checkers_find_what_is_wrong_and_nothing_else(
    tmp_path: Path, errors: Callable[[Path], str]
) -> None:
    shown = errors(tmp_path)
    found = re.findall(rf"{re.escape(USE.name)}:(\d+):.*\berror:? ?", shown)
    lines = USE.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(wrong) > 40
    assert set(map(int, found)) == wrong, shown


def test_every_fixture_is_used_with_its_type() -> None:
    used = {
        argument.arg
        for node in ast.walk(ast.parse(USE.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        for argument in [*node.args.args, ast.arg(node.name)]
    }
    assert used >= plugin._FIXTURES


def test_what_a_method_of_a_handle_returns_can_be_named() -> None:
    public = {name: getattr(pytest_fakecloud, name) for name in pytest_fakecloud.__all__}
    handles = [one for one in public.values() if isinstance(one, type) and issubclass(one, Handle)]
    assert len(handles) > 6
    unnamed = {
        f"{handle.__name__}.{name}: {word}"
        for handle in handles
        for owner in handle.__mro__
        if owner.__module__.startswith("pytest_fakecloud.")
        for name, word in _returned(owner)
        # Awaitables are used immediately.
        if word not in public and name != "aio"
    }
    # Item and Word are aliases of Python's types.
    assert {one.partition(": ")[2] for one in unnamed} <= {"Item", "Word"}, unnamed


def _returned(owner: type) -> Iterator[tuple[str, str]]:
    """Yield each public method or property with each name of this package in its return type."""
    tree = ast.parse(inspect.getsource(sys.modules[owner.__module__]))
    own = {each.name for each in tree.body if isinstance(each, ast.ClassDef)} | {
        alias.asname or alias.name
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and each.level
        for alias in each.names
    }
    for name, value in vars(owner).items():
        function = getattr(value, "fget", None) or getattr(value, "func", None) or value
        if not name.startswith("_"):
            told = str(getattr(function, "__annotations__", {}).get("return", ""))
            yield from ((name, word) for word in re.findall(r"\w+", told) if word in own)
