"""The public surface does not change unnoticed, and its types are checked in use."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import pytest_fakecloud
from pytest_fakecloud import _PART_NAMES, Cloud, ContractError, Fake, ServiceError, plugin
from pytest_fakecloud.cloud.base import fixture_fake
from pytest_fakecloud.cloud.services import SERVICES
from pytest_fakecloud.core.calls import CALL_FIELDS
from pytest_fakecloud.faults.plan import injector_of

from .harness import check_each
from .stubs import FAKES, ITEMS, stubs
from .surface import STUB, public_names, surface

ROOT = Path(__file__).parent.parent


def test_the_module_of_each_name_is_as_type_checkers_see_it() -> None:
    assert STUB.read_text(encoding="utf-8") == public_names(), "run `python -m docs.generate`"


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


CLOCK = {
    "advance", "advance_to_next", "aio", "freeze", "mode", "move_to", "next_due", "now", "now_ms",
    "now_us", "resume",
}  # fmt: skip
CLOUD = {
    *SERVICES,
    "aio", "allow", "authority", "autojump", "clock", "close", "closed", "env", "every_failure",
    "explore", "fakes", "journal", "violations", "replay", "reset", "restore", "seed", "snapshot",
}  # fmt: skip
SHOWN = {
    "fakecloud": CLOUD,
    "fakecloud.aio": {"every_failure", "explore", "replay"},
    "fakecloud.clock": CLOCK,
    "fakecloud.clock.aio": {"advance", "advance_to_next", "move_to"},
    "fakecloud.journal": {
        "assert_called", "assert_not_called", "calls", "clear", "entries", "events", "keep",
        "keep_bytes",
    },
}  # fmt: skip
"""The names that ``dir()`` shows of the objects that all tests use."""
HIDING = ("callback_capture", "destination")
"""Fixtures that hide the names of a fake that mean nothing for them."""


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(delivery="driven") as opened:
        yield opened


def shown(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


@pytest.mark.parametrize("place", SHOWN)
def test_dir_shows_what_a_test_may_use(place: str, cloud: Cloud) -> None:
    value: object = cloud
    for name in place.split(".")[1:]:
        value = getattr(value, name)
    assert shown(value) == SHOWN[place]


@pytest.mark.parametrize("fixture", SERVICES)
def test_dir_of_a_fake_shows_what_is_documented(fixture: str, cloud: Cloud) -> None:
    fake = fixture_fake(cloud, fixture)
    _, _, section = f"\n{surface()}".partition(f"\nclass {type(fake).__name__}(")
    documented = set(re.findall(r"^    ([a-z]\w*)", section.partition("\nclass ")[0], re.M))
    if fixture in HIDING:
        assert shown(fake) < documented
    else:
        assert shown(fake) == documented
    assert fake.clock is cloud.clock
    for part in ("clock", "journal"):
        assert shown(getattr(fake, part)) == SHOWN[f"fakecloud.{part}"]


USE = Path(__file__).parent / "typed_use.py"


def mypy_errors(tmp_path: Path, uses: Sequence[Path]) -> str:
    pytest.importorskip("mypy")
    # With the options of a run on the package, whose cache saves nine tenths of the time.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary"),
            *("--config-file", str(ROOT / "pyproject.toml"), *map(str, uses)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def pyright_errors(tmp_path: Path, uses: Sequence[Path]) -> str:
    pytest.importorskip("pyright")
    for use in uses:
        if use.parent != tmp_path:
            shutil.copy(use, tmp_path)
    names = [use.name for use in uses]
    settings = {"typeCheckingMode": "strict", "include": names, "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


Errors = Callable[[Path, Sequence[Path]], str]
"""Returns what a type checker prints about files, given a folder for its settings."""


@pytest.mark.slow
@pytest.mark.parametrize("errors", [mypy_errors, pyright_errors])
def test_type_checkers_find_what_is_wrong_and_nothing_else(
    tmp_path: Path, fakes: dict[str, Any], errors: Errors
) -> None:
    """Type checkers report the lines that end with ``# wrong``, and no others."""
    uses = [USE, write_field_uses(tmp_path, fakes)]
    shown = errors(tmp_path, uses)
    for use in uses:
        error_lines = re.findall(rf"\b{re.escape(use.name)}:(\d+):.*\berror:? ?", shown)
        lines = use.read_text(encoding="utf-8").splitlines()
        wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
        assert len(wrong) > 40
        assert set(map(int, error_lines)) == wrong, shown


def write_field_uses(folder: Path, fakes: Mapping[str, Any]) -> Path:
    """Write a module that uses the fields of each service with each fake."""
    classes = {name: type(fake).__name__ for name, fake in fakes.items()}
    parameters = ", ".join(f"{name}: {kind}" for name, kind in classes.items())
    lines = [f"    {use}{'' if valid else '  # wrong'}" for use, valid in field_uses(fakes)]
    uses = folder / "fields_use.py"
    uses.write_text(
        f"from pytest_fakecloud import {', '.join(classes.values())}\n\n"
        f"def test({parameters}, any_value: object) -> None:\n" + "\n".join(lines),
        encoding="utf-8",
    )
    return uses


def test_the_stubs_are_as_written() -> None:
    for path, text in stubs().items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m docs.generate`"


@pytest.fixture(scope="module")
def fakes() -> Iterator[dict[str, Any]]:
    """One fake of each kind, by the name of its fixture."""
    with Cloud(seed=1, clock="frozen") as cloud:
        yield {name: fixture_fake(cloud, name) for name in (*FAKES, "destination")}


def field_uses(fakes: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield expressions with each fact of each service on each fake, and whether it is valid."""
    calls = {name: fake.journal._recorder.call_fields for name, fake in fakes.items()}
    events = {name: fake.journal._recorder.event_fields for name, fake in fakes.items()}
    faults = {name: injector_of(fake.faults).fact_fields for name, fake in fakes.items()}
    deliveries = {"queue": injector_of(fakes["queue"].faults).service_fields}
    forms = {
        "assert_not_called({}=any_value)": calls,
        "journal.calls({}=any_value)": calls,
        "journal.calls()[:].where({}=any_value)": calls,
        "journal.assert_not_called({}=any_value)": calls,
        "journal.events({}=any_value)": events,
        "journal.events().where({}=any_value)": events,
        "faults.drop({}=any_value)": faults,
        "faults.duplicate({}=any_value)": deliveries,
    }
    for form, tables in forms.items():
        for field in sorted(set().union(*tables.values(), *faults.values()) - CALL_FIELDS.keys()):
            for name, fields in tables.items():
                # The journal of a fake without facts has the type of any journal.
                if not form.startswith("journal.") or name != "destination":
                    yield f"{name}.{form.format(field)}", field in fields


def test_a_fact_of_another_service_is_an_error(fakes: dict[str, Any]) -> None:
    def any_value(value: object) -> bool:
        return True

    names = {**fakes, "any_value": any_value}

    def is_checked(use: str, valid: bool) -> None:
        with nullcontext() if valid else pytest.raises(ContractError, match="is not a field of"):
            eval(use, names)

    check_each(is_checked, list(field_uses(fakes)))


def test_type_checkers_know_the_fields_of_every_class_of_items() -> None:
    """A list of anything else has a ``where()`` that takes no fields."""
    listed = {
        word
        for path in STUB.parent.rglob("*.py")
        for word in re.findall(r"\bResults\[(\w+)\]", path.read_text(encoding="utf-8"))
    }
    names = {kind.__name__ for items in ITEMS.values() for kind, _ in items.values()}
    # Vectors and their queries are dictionaries. Entries are calls and events.
    assert listed - {"T", "Call", "Event", "Entry", "Item"} == names


def test_every_fixture_is_used_with_its_type() -> None:
    used = {
        argument.arg
        for node in ast.walk(ast.parse(USE.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        for argument in [*node.args.args, ast.arg(node.name)]
    }
    assert used >= plugin._FIXTURES


def test_what_a_method_of_a_fake_returns_can_be_named() -> None:
    public = {name: getattr(pytest_fakecloud, name) for name in pytest_fakecloud.__all__}
    fakes = [
        fake_class
        for fake_class in public.values()
        if isinstance(fake_class, type) and issubclass(fake_class, Fake)
    ]
    assert len(fakes) > 6
    unnamed = {
        f"{fake.__name__}.{name}: {word}"
        for fake in fakes
        for owner in fake.__mro__
        if owner.__module__.startswith("pytest_fakecloud.")
        for name, word in _returned(owner)
        # Awaitables are used immediately, and named tuples are read by their fields.
        if word not in public
        and word not in _PART_NAMES
        and name != "aio"
        and not _is_named_tuple(owner, word)
    }
    # These are aliases of Python's types.
    aliases = {"Item", "KVReply", "KVValue", "Word"}
    assert {line.partition(": ")[2] for line in unnamed} <= aliases, unnamed


def _is_named_tuple(owner: type, word: str) -> bool:
    return hasattr(getattr(sys.modules[owner.__module__], word, None), "_fields")


def _returned(owner: type) -> Iterator[tuple[str, str]]:
    """Yield each public method or property with each name of this package in its return type."""
    tree = ast.parse(inspect.getsource(sys.modules[owner.__module__]))
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} | {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    for name, value in vars(owner).items():
        function = getattr(value, "fget", None) or getattr(value, "func", None) or value
        if not name.startswith("_"):
            annotation = str(getattr(function, "__annotations__", {}).get("return", ""))
            yield from ((name, word) for word in re.findall(r"\w+", annotation) if word in own)
