"""What is made later does what it would do at once, and is not made before."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
import threading
import typing
from collections.abc import Callable
from typing import Any

import pytest

from pytest_fakecloud.core import lazy
from pytest_fakecloud.core.lazy import dataclass, regex

from ..harness import UNMEASURED

SHAPES: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"eq": False},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "order": True},
]


class Place:
    """A field of each kind."""

    name: str
    number: int = 3
    many: list[int] = dataclasses.field(default_factory=list)
    hidden: str = dataclasses.field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("no name")


def made(decorator: Callable[..., Any], shape: dict[str, bool]) -> Any:
    body = {
        name: value
        for name, value in vars(Place).items()
        if name not in ("__dict__", "__weakref__")
    }
    body["__annotations__"] = Place.__annotations__
    body["__qualname__"] = "Town.Place"
    return decorator(**shape)(type("Place", (), body))


def told(act: Callable[[], object]) -> object:
    """What it returns, or the error it raises: both as they read."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def behaviour(cls: Any) -> dict[str, object]:
    """Everything about a class that its methods decide."""
    one, other = cls("a", many=[1]), cls("a", 3, [1], "seen by nobody")

    def assign(name: str) -> object:
        fresh = cls("a")
        setattr(fresh, name, 5)
        return getattr(fresh, name)

    def delete() -> object:
        fresh = cls("a")
        del fresh.number
        return sorted(vars(fresh)) if hasattr(fresh, "__dict__") else None

    def extended() -> object:
        fresh = cls("a")
        vars(fresh)["more"] = 5
        return fresh

    return {
        "repr": repr(one),
        "equal": one == other,
        "unequal": one != cls("b"),
        "another class": one == ("a", 3, [1], ""),
        "hashable": cls.__hash__ is not None,
        "hashed alike": told(lambda: hash(one) == hash(other)),
        "ordered": told(lambda: (one < cls("b"), one <= other, one > other, one >= other)),
        "orders": [name for name in ("__lt__", "__le__", "__gt__", "__ge__") if name in vars(cls)],
        "copied with more": told(lambda: vars(copy.copy(extended()))),
        "assigned": told(lambda: assign("number")),
        "unknown assigned": told(lambda: assign("nunber")),
        "deleted": told(delete),
        "called wrongly": told(lambda: cls()),
        "called too much": told(lambda: cls("a", 1, [], "", 5)),
        "post init": told(lambda: cls("")),
        "signature": str(inspect.signature(cls)),
        "names": [cls.__init__.__qualname__, cls.__repr__.__qualname__],
        "module": cls.__init__.__module__,
        "types": typing.get_type_hints(cls.__init__),
        "matched": cls.__match_args__,
        "fields": [(each.name, each.type, each.default) for each in dataclasses.fields(cls)],
        "as a dict": dataclasses.asdict(one),
        "replaced": repr(dataclasses.replace(one, name="c")),
        "copied": repr(copy.deepcopy(one)),
        "dict": hasattr(one, "__dict__"),
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_does_what_the_standard_one_does(shape: dict[str, bool]) -> None:
    ours, standard = made(dataclass, shape), made(dataclasses.dataclass, shape)
    expected = behaviour(standard)
    if shape.get("frozen"):
        # The standard one fails with a TypeError of super() where there are slots.
        refused = dataclasses.FrozenInstanceError, "cannot assign to field 'nunber'"
        expected["unknown assigned"] = refused
    assert behaviour(ours) == expected
    # Once more, now that everything is compiled.
    assert behaviour(ours) == expected


@dataclass(frozen=True, slots=True)
class Kept:
    """One that can be found by its name."""

    name: str
    number: int = 1


def test_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept("a", 2))) == Kept("a", 2)


def test_a_method_of_the_class_stays() -> None:
    @dataclass(frozen=True)
    class Own:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __hash__(self) -> int:
            return 7

    assert repr(Own("a")) == "<a>"
    assert hash(Own("a")) == 7
    assert Own("a") == Own("a")


def test_compiles_what_is_called_and_nothing_else() -> None:
    @dataclass(slots=True)
    class Asked:
        name: str

    def waiting() -> set[str]:
        return {name for name, value in vars(Asked).items() if type(value).__name__ == "_Later"}

    assert waiting() == {"__init__", "__repr__", "__eq__"}
    one = Asked("a")
    assert waiting() == {"__repr__", "__eq__"}
    assert one == Asked("a")
    assert waiting() == {"__repr__"}


def test_threads_may_be_first_at_the_same_time() -> None:
    for _ in range(50):

        @dataclass(frozen=True, slots=True)
        class Shared:
            name: str

        together = threading.Barrier(4)
        seen: list[object] = []

        def make(
            cls: type[Shared] = Shared,
            together: threading.Barrier = together,
            seen: list[object] = seen,
        ) -> None:
            together.wait(10)
            seen.append(cls("a"))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [Shared("a")] * 4


def test_a_class_without_a_docstring_has_its_name_as_one() -> None:
    @dataclass
    class Bare:
        name: str

    assert Bare.__doc__ == "Bare"
    assert Bare("a").name == "a"


def test_an_expression_is_the_compiled_one() -> None:
    words = regex(r"[a-z]+", re.IGNORECASE)
    assert words.findall("One two") == ["One", "two"]
    assert words.sub("-", "a1b") == "-1-"
    assert words.pattern == "[a-z]+"
    assert regex(rb"\d").search(b"a1") is not None


def test_an_expression_is_compiled_when_it_is_used() -> None:
    broken = regex("(")
    with pytest.raises(re.error, match="missing \\)"):
        broken.match("(")


USED = {
    "decimal": "Decimal",
    "difflib": "get_close_matches",
    "email_utils": "parsedate_to_datetime",
    "fractions": "Fraction",
    "logging": "Handler",
    "sysconfig": "get_paths",
    "traceback": "format_exception",
}


def test_all_modules_are_listed() -> None:
    assert sorted(lazy.MODULES) == sorted(name.replace("_", ".") for name in USED)


@pytest.mark.parametrize("name", sorted({*lazy.__all__} - {"MODULES", "dataclass", "regex"}))
def test_a_module_is_imported_when_it_is_used(name: str) -> None:
    real = getattr(lazy, name).__name__
    code = (
        "import sys\n"
        f"from pytest_fakecloud.core.lazy import {name} as late\n"
        f"print({real!r} in sys.modules)\n"
        f"found = late.{USED[name]}\n"
        f"print({real!r} in sys.modules, found is sys.modules[{real!r}].{USED[name]})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=UNMEASURED
    )
    assert done.stdout.split() == ["False", "True", "True"]
