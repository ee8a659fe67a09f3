"""A failure in any public method shows the test's line and no line of this package."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from pytest_fakecloud import ContractError
from pytest_fakecloud.pytest_run.outcomes import hide_ours

from ..harness import Run

# Calls each public method of every object that a test can reach, with wrong values, unknown fields
# and impossible counts, until one of these arguments makes it fail.
EVERY_METHOD = """
import asyncio
import inspect

import pytest
from pytest_fakecloud import Cloud, ContractError

CLOUD = Cloud(seed=1, clock="frozen", delivery="driven")
ENDS = {"close", "pause", "stop"}
VALUES = (object(), "nope", -1, 3)


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    CLOUD.close()


def objects():
    found, left = {}, [
        CLOUD, CLOUD.kv_server(), CLOUD.vector_index(), CLOUD.broker(), CLOUD.queue(),
        CLOUD.callback_capture(), CLOUD.destination(),
    ]
    while left:
        one = left.pop(0)
        kind = type(one)
        if kind in found or not kind.__module__.startswith("pytest_fakecloud"):
            continue
        found[kind] = one
        for name in dir(one):
            if not name.startswith("_"):
                try:
                    value = getattr(one, name)
                except Exception:
                    continue
                if not inspect.isroutine(value):
                    left.append(value)
        if isinstance(one, Cloud):
            left += [CLOUD.queue().messages()]
    return found


def methods():
    for kind, one in objects().items():
        for name in dir(kind):
            if name.startswith("_") or name in ENDS:
                continue
            try:
                method = getattr(one, name)
            except Exception:
                continue
            code = getattr(method, "__module__", None) or ""
            if inspect.isroutine(method) and code.startswith("pytest_fakecloud"):
                yield pytest.param(method, id=f"{kind.__name__}.{name}")


def forms(method):
    parameters = inspect.signature(method).parameters.values()
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in plain if p.default is p.empty]
    named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty}
    for value in VALUES:
        args, kwargs = [value] * len(needed), dict.fromkeys(named, value)
        yield args, kwargs
        if any(p.name == "times" for p in parameters):
            yield args, {**kwargs, "times": 7}
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            yield args, {**kwargs, "no_such_field": 1}
        for one in parameters:
            if one.default is not one.empty and one.kind is not one.POSITIONAL_ONLY:
                yield args, {**kwargs, one.name: value}


@pytest.mark.parametrize("method", methods())
def test_it(method):
    for args, kwargs in forms(method):
        try:
            result = method(*args, **kwargs)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except (AssertionError, ContractError):
            raise
        except Exception:
            pass
    pytest.skip("nothing is wrong with that")
"""
OURS = re.compile(r"^\S*pytest_fakecloud/\S*\.py:\d+:", re.MULTILINE)


@pytest.mark.slow
def test_no_public_method_shows_our_lines(run: Run) -> None:
    text = run(EVERY_METHOD, "-v").stdout.str().replace("\\", "/")
    outcomes = dict(re.findall(r"::test_it\[([\w.]+)\] (FAILED|SKIPPED)", text))
    assert {
        "Queue.assert_delivered",
        "CallbackCapture.wait_for_callback",
        "Results.only",
    } <= outcomes.keys()
    asserting = [name for name in outcomes if ".assert_" in name]
    assert len(asserting) > 25
    # This assertion holds.
    passed = [name for name in asserting if outcomes[name] == "SKIPPED"]
    assert passed == ["Queue.assert_idle"]
    assert sum(outcome == "FAILED" for outcome in outcomes.values()) > 120
    assert OURS.findall(text) == []


@pytest.mark.slow
def test_assertions_hide_themselves_without_the_plugins_hook(run: Run) -> None:
    source = EVERY_METHOD.replace("(AssertionError, ContractError)", "AssertionError")
    result = run(source, "-rf", "-p", "no:fakecloud")
    text = result.stdout.str().replace("\\", "/")
    assert len(re.findall(r"^FAILED ", text, re.MULTILINE)) >= 20
    assert OURS.findall(text) == []


def test_a_unittest_case_shows_none(run: Run) -> None:
    result = run(
        """
        import unittest
        import pytest

        class TestCase(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def fakes(self, queue):
                self.queue = queue

            def test_it(self):
                self.queue.publish("https://app.example.com", no_such_thing=1)
        """
    )
    result.assert_outcomes(failed=1)
    assert OURS.findall(result.stdout.str().replace("\\", "/")) == []


def test_a_fake_that_breaks_shows_where(run: Run) -> None:
    result = run(
        """
        def test_it(queue):
            queue._engine.data = None
            queue.messages()
        """
    )
    assert OURS.findall(result.stdout.str().replace("\\", "/"))


# -- frames that stay ------------------------------------------------------------------------------


def function_of(module: object, path: str) -> Callable[..., Any]:
    """Return a function that belongs to the given module and file.

    It calls the given function, raises the given exception, or raises it after a call has failed.
    """
    code = """
def call(inner, *rest):
    if isinstance(inner, (type, BaseException)):
        raise inner
    if not isinstance(inner, tuple):
        return inner(*rest)
    try:
        return inner[0](*inner[1:])
    except BaseException:
        raise rest[0]
"""
    names: dict[str, Any] = {"__name__": module}
    exec(compile(code, path, "exec"), names)
    made: Callable[..., Any] = names["call"]
    return made


FAKES = function_of("pytest_fakecloud.queue.fake", "/ours.py")
THEIRS = function_of("test_shop", "/theirs.py")
NAMELESS = function_of(None, "/nameless.py")
LIBRARY = function_of("json.decoder", f"{sysconfig.get_paths()['stdlib']}/json/decoder.py")
IMPORTING = function_of("importlib._bootstrap", "<frozen importlib._bootstrap>")
INSTALLED = function_of("tenacity", "/env/site-packages/tenacity/__init__.py")
RUNNER = function_of("_pytest.runner", "/site/_pytest/runner.py")
HOOKS = function_of("pluggy._callers", "/site/pluggy/_callers.py")


def files_of(trace: TracebackType | None) -> list[str]:
    """Return the files of the frames of a traceback, except this file."""
    files = []
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename.rpartition("/")[2])
        trace = trace.tb_next
    return [file for file in files if file != "test_tracebacks.py"]


def hidden(
    path: tuple[Any, ...], *, full: bool = False, alone: bool = False, has_excinfo: bool = False
) -> Any:
    """Call ``path`` and return its exception as a report shows it.

    With ``alone``, the frames of this file are removed; with ``has_excinfo``, a unittest test case
    holds the exception until the report.
    """
    try:
        path[0](*path[1:])
    except Exception as error:
        if alone:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        info = pytest.ExceptionInfo.from_exception(error)
    options = {"fulltrace": full}
    item = SimpleNamespace(config=SimpleNamespace(getoption=options.__getitem__))
    item._excinfo = [info] if has_excinfo else None
    call = SimpleNamespace(excinfo=None if has_excinfo else info)
    hide_ours(item, call)
    return item._excinfo[0] if has_excinfo else call.excinfo


@pytest.mark.parametrize("has_excinfo", [False, True])
@pytest.mark.parametrize(
    ("path", "files"),
    [
        ((THEIRS, FAKES, AssertionError), ["theirs.py"]),
        ((THEIRS, FAKES, ContractError), ["theirs.py"]),
        ((THEIRS, FAKES, THEIRS, AssertionError), ["theirs.py", "theirs.py"]),
        ((LIBRARY, FAKES, AssertionError), ["decoder.py"]),
        ((NAMELESS, FAKES, AssertionError), ["nameless.py"]),
        ((THEIRS, FAKES, KeyError), ["theirs.py", "ours.py"]),
        ((THEIRS, LIBRARY, AssertionError), ["theirs.py", "decoder.py"]),
    ],
    ids=["assertion", "misuse", "between", "below this test", "no name", "other", "none of ours"],
)
def test_ours_are_left_out_of_assertions_and_misuse(
    path: tuple[Any, ...], files: list[str], has_excinfo: bool
) -> None:
    assert files_of(hidden(path, has_excinfo=has_excinfo).tb) == files


def test_all_stay_where_all_are_asked_for() -> None:
    excinfo = hidden((THEIRS, FAKES, AssertionError), full=True)
    assert files_of(excinfo.tb) == ["theirs.py", "ours.py"]


@pytest.mark.parametrize("above", [RUNNER, HOOKS, LIBRARY, INSTALLED, IMPORTING])
def test_ours_stay_where_nothing_of_a_tester_would(above: Any) -> None:
    excinfo = hidden((above, FAKES, AssertionError), alone=True)
    assert files_of(excinfo.tb)[1:] == ["ours.py"]


@pytest.mark.parametrize(
    ("path", "files"),
    [
        # Frames of an exception that this package caught are not shown.
        ((THEIRS, FAKES, (LIBRARY, KeyError), AssertionError), [["theirs.py"], []]),
        (
            (THEIRS, FAKES, (THEIRS, FAKES, KeyError), AssertionError),
            [["theirs.py"], ["theirs.py"]],
        ),
        (
            (THEIRS, (THEIRS, (FAKES, KeyError), ValueError), AssertionError),
            [["theirs.py"], ["theirs.py", "theirs.py"], ["theirs.py"]],
        ),
        ((THEIRS, LIBRARY, (LIBRARY, KeyError), AssertionError), None),
    ],
    ids=["of ours", "of a callback", "of a cause", "none of ours"],
)
def test_causes_show_their_testers_frames(
    path: tuple[Any, ...], files: list[list[str]] | None
) -> None:
    left, error = [], hidden(path).value
    while error is not None:
        left.append(files_of(error.__traceback__))
        error = error.__context__
    assert left == (files or [["theirs.py", "decoder.py"], ["decoder.py", "decoder.py"]])


def test_causes_that_go_round_in_a_circle() -> None:
    cause, error = KeyError(), AssertionError()
    cause.__context__ = ValueError()
    cause.__context__.__cause__ = cause
    error.__cause__ = cause
    assert files_of(hidden((THEIRS, FAKES, error)).tb) == ["theirs.py"]


def test_a_failure_without_a_report_is_left_alone() -> None:
    item = SimpleNamespace(config=SimpleNamespace(getoption={"fulltrace": False}.__getitem__))
    hide_ours(item, SimpleNamespace(excinfo=None))
