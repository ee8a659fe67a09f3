"""Replacing a library's function together with other tools, and the warning if it is missing."""

from __future__ import annotations

import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud.process.replace import (
    Change,
    Everywhere,
    Hook,
    ShortcutWarning,
    original_of,
    replace,
)

USER, OTHER = object(), object()


class Thing:
    """A stand-in for a library's class."""

    def send(self) -> str:
        return "sent"


@pytest.fixture
def library() -> Iterator[Any]:
    module = types.ModuleType("a_library")
    module.Thing = type("Thing", (), {"send": Thing.send})  # type: ignore[attr-defined]
    sys.modules["a_library"] = module
    yield module
    del sys.modules["a_library"]


def wrap(original: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    def send(thing: object) -> str:
        return f"hooked {original(thing)}" if hook.users else str(original(thing))

    return send


def make(path: str = "Thing.send") -> Hook:
    return Hook("a_library", path, wrap, without="it is slower")


def test_the_function_is_replaced_while_somebody_needs_it(library: Any) -> None:
    before = library.Thing.send
    hook = make()
    hook.enter(USER)
    hook.enter(OTHER)
    assert library.Thing().send() == "hooked sent"
    hook.leave(USER)
    hook.leave(USER)
    assert library.Thing().send() == "hooked sent"
    hook.leave(OTHER)
    assert library.Thing.send is before
    hook.leave(OTHER)
    assert not hook.users


def test_a_change_whose_end_was_interrupted_is_undone_when_its_user_leaves_again() -> None:
    ends: list[str] = []

    class Interrupted(Change):
        def refresh(self) -> None: ...

        def _end(self) -> None:
            ends.append("interrupted" if not ends else "ended")
            if len(ends) == 1:
                raise KeyboardInterrupt

    change = Interrupted()
    change.enter(USER)
    with pytest.raises(KeyboardInterrupt):
        change.leave(USER)
    change.leave(USER)
    assert ends == ["interrupted", "ended"]
    assert not change.users


def test_the_same_replacement_serves_again(library: Any) -> None:
    hook = make()
    hook.enter(USER)
    ours = library.Thing.send
    hook.leave(USER)
    hook.enter(USER)
    assert library.Thing.send is ours
    hook.leave(USER)


def test_somebody_elses_patch_on_top_stays_and_ours_below_it_is_inert(library: Any) -> None:
    hook = make()
    hook.enter(USER)
    ours = library.Thing.send
    library.Thing.send = lambda thing: f"theirs {ours(thing)}"
    hook.leave(USER)
    assert library.Thing().send() == "theirs sent"
    library.Thing.send = ours
    assert library.Thing().send() == "sent"
    hook.enter(USER)
    assert library.Thing().send() == "hooked sent"
    hook.leave(USER)


def test_a_patch_that_ends_takes_ours_away_and_refresh_brings_it_back(library: Any) -> None:
    original = library.Thing.send
    library.Thing.send = lambda thing: "theirs"
    hook = make()
    hook.enter(USER)
    assert library.Thing().send() == "hooked theirs"
    library.Thing.send = original
    hook.refresh()
    assert library.Thing().send() == "hooked sent"
    hook.leave(USER)
    assert library.Thing.send is original


def test_a_module_made_anew_with_the_same_classes_is_wrapped_once(library: Any) -> None:
    original = library.Thing.send
    hook = make()
    hook.enter(USER)
    again = types.ModuleType("a_library")
    again.Thing = library.Thing  # type: ignore[attr-defined]
    sys.modules["a_library"] = again
    hook.refresh()
    assert library.Thing().send() == "hooked sent"
    hook.leave(USER)
    assert library.Thing.send is original


def test_a_library_that_is_not_imported_is_left_alone() -> None:
    hook = Hook("a_library_nobody_has", "send", wrap, without="it is slower")
    hook.enter(USER)
    assert "a_library_nobody_has" not in sys.modules
    hook.leave(USER)


@pytest.mark.parametrize("path", ["Thing.post", "Other.send", "Thing.send.deeper"])
def test_a_missing_name_switches_it_off_and_says_so_once(library: Any, path: str) -> None:
    hook = make(path)
    with pytest.warns(ShortcutWarning) as caught:
        hook.enter(USER)
    assert [str(warning.message) for warning in caught] == [
        f"a_library has no {path} in this version, so it is slower"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hook.refresh()
        hook.leave(USER)
    assert library.Thing().send() == "sent"


# -- one attribute ---------------------------------------------------------------------------------


class Base:
    def method(self) -> str:
        return "method"

    @staticmethod
    def static() -> str:
        return "static"


class Heir(Base):
    __slots__ = ("slot",)


def test_an_attribute_is_restored_exactly() -> None:
    inherited, holder = dict(vars(Heir)), Heir()
    holder.slot = 1
    before = vars(Base)["static"]
    replacements = [
        replace(Heir, "method", lambda heir: "ours"),
        replace(Base, "static", lambda: "ours"),
        replace(holder, "slot", 2),
    ]
    assert (holder.method(), Base.static(), holder.slot) == ("ours", "ours", 2)
    for replacement in replacements:
        replacement.restore()
        replacement.restore()
    assert (holder.method(), Base.static(), holder.slot) == ("method", "static", 1)
    assert vars(Base)["static"] is before
    assert vars(Heir) == inherited
    with pytest.raises(AttributeError, match="has no 'missing' that could be replaced"):
        replace(holder, "missing", 1)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1)])
def test_nested_replacements_may_end_in_any_order(order: tuple[int, ...]) -> None:
    holder = types.SimpleNamespace(name="original")
    nested = [replace(holder, "name", text) for text in ("first", "second", "third")]
    for number in order:
        nested[number].restore()
    assert holder.name == "original"


def test_a_value_of_other_code_stays_and_ours_counts_as_ended_if_it_comes_back() -> None:
    holder, ours = types.SimpleNamespace(name="original"), object()
    first = replace(holder, "name", ours)
    holder.name = "theirs"
    first.restore()
    assert holder.name == "theirs"
    holder.name = ours
    assert original_of(holder.name) == "original"
    second = replace(holder, "name", "again")
    second.restore()
    assert holder.name == "original"


# -- every place -----------------------------------------------------------------------------------

HOLDER = """
import time
from time import sleep as alias

TABLE = {"sleep": time.sleep, "other": 1}
LIST = [time.sleep]

def default(first, wait=time.sleep, *, keyword=time.sleep):
    return wait, keyword

def made():
    bound = time.sleep
    def closure():
        return bound
    return closure

closure = made()

class Waiter:
    pause = time.sleep
    static = staticmethod(time.sleep)

    def method(self, wait=time.sleep):
        return wait

    class Inner:
        pause = time.sleep

class Proxy:
    def __getattr__(self, name):
        raise RuntimeError("outside of a request")
    __class__ = property(lambda self: self.nothing)

proxy = Proxy()
"""


def held(module: Any) -> list[Any]:
    waiter = module.Waiter()
    return [
        module.alias,
        module.TABLE["sleep"],
        module.LIST[0],
        *module.default(0),
        module.closure(),
        waiter.pause,
        waiter.static,
        waiter.method(),
        waiter.Inner().pause,
    ]


@pytest.fixture
def holder() -> Iterator[Any]:
    module = types.ModuleType("a_holder")
    exec(HOLDER, vars(module))
    sys.modules["a_holder"] = module
    yield module
    sys.modules.pop("a_holder", None)


def test_a_function_is_replaced_wherever_a_module_holds_it(holder: Any) -> None:
    def ours(seconds: float) -> None:
        """Replace ``time.sleep()``."""

    real, before = time.sleep, dict(vars(holder.Waiter))
    everywhere = Everywhere(lambda name: name not in ("time", "a_holder"))
    everywhere.add([(real, ours)])
    assert set(held(holder)) <= {ours, time.sleep}
    assert time.sleep.__wrapped__ is ours  # type: ignore[attr-defined]
    del sys.modules["a_holder"]  # It is restored all the same.
    everywhere.restore()
    assert set(held(holder)) == {real}
    assert dict(vars(holder.Waiter)) == before
    assert time.sleep is real


def test_a_module_that_is_left_out_keeps_the_function(holder: Any) -> None:
    real, everywhere = time.sleep, Everywhere(lambda name: name != "time")
    everywhere.add([(real, lambda seconds: None)])
    assert set(held(holder)) == {real}
    everywhere.restore()


def test_what_was_stored_since_is_given_back(holder: Any) -> None:
    real, everywhere = time.sleep, Everywhere(lambda name: name not in ("time", "a_holder"))
    everywhere.add([(real, lambda seconds: None)])
    exec(HOLDER, vars(holder))
    assert real not in held(holder)
    everywhere.restore()
    assert set(held(holder)) == {real}


@pytest.mark.parametrize("is_kept", [False, True], ids=["forgotten", "kept"])
@pytest.mark.parametrize("name", ["sleep", "default"], ids=["builtin", "of_python"])
def test_modules_are_searched_again_only_if_a_replacement_was_kept(
    holder: Any, name: str, is_kept: bool
) -> None:
    asked: list[str] = []

    def leaves_out(module: str) -> bool:
        asked.append(module)
        return module != "a_holder"

    holder.sleep = time.sleep
    real, everywhere = getattr(holder, name), Everywhere(leaves_out)
    everywhere.add([(real, lambda seconds: None)])
    if is_kept:
        holder.kept = getattr(holder, name)
    asked.clear()
    everywhere.restore()
    assert ("a_holder" in asked) is is_kept
    assert getattr(holder, "kept", real) is real
    assert getattr(holder, name) is real
