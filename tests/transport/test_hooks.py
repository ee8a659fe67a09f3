"""Replacing a library's function together with other tools, and the warning if it is missing."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud.transport.hooks import Hook, ShortcutWarning


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


def wrap(original: Callable[..., Any], active: Callable[[], bool]) -> Callable[..., Any]:
    def send(thing: object) -> str:
        return f"hooked {original(thing)}" if active() else str(original(thing))

    return send


def make(path: str = "Thing.send") -> Hook:
    return Hook("a_library", path, wrap, without="it is slower")


def test_the_function_is_replaced_while_somebody_needs_it(library: Any) -> None:
    before = library.Thing.send
    hook = make()
    hook.enter()
    hook.enter()
    assert library.Thing().send() == "hooked sent"
    hook.leave()
    assert library.Thing().send() == "hooked sent"
    hook.leave()
    assert library.Thing.send is before
    hook.leave()
    assert not hook.active()


def test_the_same_replacement_serves_again(library: Any) -> None:
    hook = make()
    hook.enter()
    ours = library.Thing.send
    hook.leave()
    hook.enter()
    assert library.Thing.send is ours
    hook.leave()


def test_somebody_elses_patch_on_top_stays_and_ours_below_it_is_inert(library: Any) -> None:
    hook = make()
    hook.enter()
    ours = library.Thing.send
    library.Thing.send = lambda thing: f"theirs {ours(thing)}"
    hook.leave()
    assert library.Thing().send() == "theirs sent"
    library.Thing.send = ours
    assert library.Thing().send() == "sent"
    hook.enter()
    assert library.Thing().send() == "hooked sent"
    hook.leave()


def test_a_patch_that_ends_takes_ours_away_and_refresh_brings_it_back(library: Any) -> None:
    original = library.Thing.send
    library.Thing.send = lambda thing: "theirs"
    hook = make()
    hook.enter()
    assert library.Thing().send() == "hooked theirs"
    library.Thing.send = original
    hook.refresh()
    assert library.Thing().send() == "hooked sent"
    hook.leave()
    assert library.Thing.send is original


def test_a_module_made_anew_with_the_same_classes_is_wrapped_once(library: Any) -> None:
    original = library.Thing.send
    hook = make()
    hook.enter()
    again = types.ModuleType("a_library")
    again.Thing = library.Thing  # type: ignore[attr-defined]
    sys.modules["a_library"] = again
    hook.refresh()
    assert library.Thing().send() == "hooked sent"
    hook.leave()
    assert library.Thing.send is original


def test_a_library_that_is_not_imported_is_left_alone() -> None:
    hook = Hook("a_library_nobody_has", "send", wrap, without="it is slower")
    hook.enter()
    assert "a_library_nobody_has" not in sys.modules
    hook.leave()


@pytest.mark.parametrize("path", ["Thing.post", "Other.send", "Thing.send.deeper"])
def test_a_missing_name_switches_it_off_and_says_so_once(library: Any, path: str) -> None:
    hook = make(path)
    with pytest.warns(ShortcutWarning) as caught:
        hook.enter()
    assert [str(one.message) for one in caught] == [
        f"a_library has no {path} in this version, so it is slower"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hook.refresh()
        hook.leave()
    assert library.Thing().send() == "sent"
