"""Errors: reprs of the test's values, functions that return awaitables, and descriptions of errors."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.core.errors import (
    ContractError,
    ServiceError,
    describe_error,
    if_installed,
    importing,
    report_failure,
    runs_through_test,
    shown,
)
from pytest_fakecloud.core.field_types import check_function, is_lazy_function

from ..harness import error_of


class Mute:
    """An object whose repr raises a given exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error


def test_an_error_of_a_service_has_its_text_its_status_and_its_headers() -> None:
    error = ServiceError(429, "slowly", headers=[("Retry-After", "1")])
    assert (str(error), error.message, error.status) == ("slowly", "slowly", 429)
    assert error.headers == (("Retry-After", "1"),)
    assert ServiceError(404, "no").headers == ()


def test_an_object_whose_repr_raises_is_shown_by_its_type() -> None:
    assert shown("x") == "'x'"
    assert shown(Mute(ValueError("no"))) == "<Mute, whose repr raises>"


INTERRUPTIONS = [KeyboardInterrupt(), pytest.fail.Exception("time-out"), SystemExit()]


@pytest.mark.parametrize("error", INTERRUPTIONS)
def test_an_interruption_of_a_repr_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        shown(Mute(error))


async def coroutine() -> None:
    """A coroutine that is never awaited."""


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def plain() -> None:
    """A function whose call does nothing."""


def called_as(kind: Callable[..., Any]) -> Any:
    """Return an object whose __call__ is the given function."""
    return type("Called", (), {"__call__": kind})()


@pytest.mark.parametrize(
    ("function", "begins"),
    [
        (coroutine, True), (generator, True), (async_generator, True),
        (functools.partial(coroutine), True), (called_as(lambda self: 1), False),
        (functools.partial(plain), False), (plain, False), (print, False), (int, False), (5, False),
        *((called_as(kind), True) for kind in (coroutine, generator, async_generator)),
        *((kind.__get__(5), True) for kind in (coroutine, generator, async_generator)),
    ],
)  # fmt: skip
def test_what_only_begins_when_it_is_called(function: object, begins: bool) -> None:
    assert is_lazy_function(function) is begins


def test_a_function_is_what_can_be_called_and_does_something_at_once() -> None:
    check_function(plain, "that says yes")
    assert (
        error_of(check_function, "x", "that says yes")
        == "'x' is not a function: pass one that says yes"
    )
    assert error_of(check_function, generator, "that says yes") == (
        f"{generator!r} must be awaited or iterated, which is not supported here: "
        "pass a function that says yes"
    )


class Mumbles(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Interrupts(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def raised(error: BaseException) -> BaseException:
    """Return the error after it was raised and caught."""
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ContractError("pass a number\nsuch as 5"), "pass a number"),
        (ContractError(""), "ContractError: "),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
        (PermissionError("not yours"), "not yours"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (Mumbles(), "Mumbles: str() of it raises"),
    ],
)
def test_an_error_is_told_in_one_line(error: BaseException, words: str) -> None:
    assert describe_error(error) == words


def test_what_nobody_wrote_for_a_reader_is_told_with_the_place_that_raised_it() -> None:
    line = raised.__code__.co_firstlineno + 3
    place = f" ({Path(__file__).name}:{line})"
    assert describe_error(raised(KeyError("x"))) == f"KeyError: 'x'{place}"
    assert describe_error(raised(ContractError("pass a number"))) == "pass a number"

    def calls() -> None:
        {}["x"]  # type: ignore[index]

    with pytest.raises(KeyError) as caught:
        calls()
    line = calls.__code__.co_firstlineno + 1
    assert describe_error(caught.value) == f"KeyError: 'x' ({Path(__file__).name}:{line})"


def test_who_interrupts_the_text_of_an_error_is_heard() -> None:
    with pytest.raises(KeyboardInterrupt):
        describe_error(Interrupts())


def test_what_a_block_that_explains_raises_becomes_one_line() -> None:
    lines: list[str] = []
    with report_failure("no list", lines.append):
        pass
    assert lines == []
    with report_failure("no list", lines.append):
        raise ContractError("pass a number")
    assert lines == ["no list: pass a number"]
    for error in INTERRUPTIONS:
        with pytest.raises(type(error)), report_failure("no list", lines.append):
            raise error
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("module", "rewritten", "expected"),
    [
        ("app.orders", False, False), ("app.test_orders", False, True),
        ("app.orders_test", False, True), ("app.conftest", False, True),
        ("app.asserting", True, True), ("pytest_fakecloud.core.errors", True, False),
    ],
)  # fmt: skip
def test_the_traceback_of_an_exception_tells_whether_a_test_file_is_in_it(
    module: str, rewritten: bool, expected: bool
) -> None:
    names: dict[str, Any] = {"__name__": module}
    if rewritten:
        names["@pytest_ar"] = None
    exec("def fail():\n    raise ValueError", names)
    with pytest.raises(ValueError) as caught:
        names["fail"]()
    trace = caught.value.__traceback__
    assert trace is not None
    assert runs_through_test(caught.value.with_traceback(trace.tb_next)) is expected


@pytest.mark.parametrize(
    ("name", "extra", "error"),
    [
        ("time_machine", "time", "x needs time-machine: pip install 'pytest-fakecloud[time]'"),
        ("redis.asyncio", "redis", "x needs redis: pip install 'pytest-fakecloud[redis]'"),
        (
            "pytest_fakecloud.kv.real_redis",
            "redis",
            "x needs pytest_fakecloud.kv.real_redis, a part of pytest-fakecloud that is not installed "
            "here: pip install --force-reinstall pytest-fakecloud",
        ),
    ],
)
def test_a_missing_module_is_an_error_that_says_how_to_install_it(
    name: str, extra: str, error: str
) -> None:
    with pytest.raises(ContractError) as caught, importing("x", extra):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("name", "extra", "install"),
    [
        ("confluent_kafka", "kafka", "'pytest-fakecloud[kafka]'"),
        ("pytest_fakecloud.explore", "", "pytest-fakecloud"),
    ],
)
def test_a_program_without_a_module_names_the_python_package(
    monkeypatch: pytest.MonkeyPatch, name: str, extra: str, install: str
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(ContractError) as caught, importing("x", extra):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert str(caught.value) == (
        f"x needs {name}, which is not in this program: use the Python package, pip install {install}"
    )


def test_a_missing_module_of_no_extra_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError), importing("x"):
        raise ModuleNotFoundError("No module named 'other'", name="other")


def test_a_block_of_a_missing_part_ends_without_an_error() -> None:
    with if_installed("hints"):
        raise ModuleNotFoundError("No module named …", name="pytest_fakecloud.hints")
    for other in ("pytest_fakecloud.hints.variables", "hints"):
        with pytest.raises(ModuleNotFoundError), if_installed("hints"):
            raise ModuleNotFoundError("No module named …", name=other)


class Empty(Exception):
    """An exception that is false."""

    def __len__(self) -> int:
        return 0
