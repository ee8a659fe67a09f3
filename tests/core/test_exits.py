"""Functions that undo changes: all are called, and an interrupted one is called again."""

from __future__ import annotations

import functools

import pytest

from pytest_fakecloud.core.exits import Exits, call_all, exiting


class Empty(Exception):
    """An exception that is false."""

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("first", [ValueError("1"), Empty("1"), KeyboardInterrupt("1")])
def test_all_functions_are_called_and_the_first_exception_is_raised(first: BaseException) -> None:
    called: list[str] = []

    def failing(error: BaseException) -> None:
        called.append(str(error))
        raise error

    with pytest.raises(type(first), match="1"):
        call_all(functools.partial(failing, error) for error in (first, ValueError("2")))
    assert called == ["1", "2"]


def test_exits_call_the_latest_function_first_and_repeat_an_interrupted_one() -> None:
    called: list[str] = []

    def interrupted() -> None:
        called.append("interrupted")
        if called.count("interrupted") == 1:
            raise KeyboardInterrupt

    def block() -> None:
        with exiting() as exits:
            exits.callback(called.append, "first")
            exits.callback(interrupted)
            exits.callback(called.append, "last")
            called.append("block")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert called == ["block", "last", "interrupted", "first", "interrupted"]


@pytest.mark.parametrize("first", [KeyboardInterrupt, OSError])
def test_exits_raise_the_first_exception_although_a_function_fails_again(
    first: type[BaseException],
) -> None:
    called: list[str] = []

    def interrupted() -> None:
        called.append("interrupted")
        if called.count("interrupted") == 1:
            raise first

    def failing() -> None:
        called.append("failing")
        raise ValueError

    exits = Exits()
    exits.callback(failing)
    exits.callback(interrupted)
    with pytest.raises(first):
        exits.close()
    assert called == ["interrupted", "failing"] * 2
    assert len(exits) == 1


def test_a_function_that_is_registered_twice_is_called_twice() -> None:
    called: list[int] = []
    exits = Exits()

    def count() -> None:
        called.append(len(exits))

    exits.callback(count)
    exits.callback(count)
    exits.close()
    assert called == [2, 1]
    assert not exits


def test_a_function_that_closes_its_exits_is_called_once() -> None:
    called: list[str] = []
    exits = Exits()
    exits.callback(called.append, "first")
    calls = [exits.close]
    exits.callback(lambda: calls and calls.pop()())
    exits.close()
    exits.close()
    assert called == ["first"]


def test_a_function_that_is_called_before_the_exits_close_is_called_once() -> None:
    called: list[str] = []
    exits = Exits()
    interruptions = [KeyboardInterrupt()]

    def interrupted() -> None:
        if interruptions:
            raise interruptions.pop()
        called.append("early")

    exits.callback(called.append, "first")
    end = exits.callback(interrupted)
    with pytest.raises(KeyboardInterrupt):
        end()
    end()
    end()
    exits.close()
    assert called == ["early", "first"]
