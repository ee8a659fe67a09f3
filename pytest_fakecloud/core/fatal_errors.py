"""Tells exceptions that end a test, and failed assertions, from errors that the application handles."""

from __future__ import annotations

import sys
import traceback

from .errors import ContractError


def ends_the_test(error: BaseException | None) -> BaseException | None:
    """Return the exception that must end the test unchanged; None for a failure of the application.

    An ``Exception`` is a failure of the application. Everything else ends the test: the outcomes of
    pytest (``fail``, which pytest-timeout calls inside the code under test, ``skip``, ``xfail``,
    ``exit``), ``unittest.SkipTest``, ``KeyboardInterrupt`` and ``SystemExit``. An outcome of pytest
    or a ``KeyboardInterrupt`` also ends the test from inside an exception group, or if the
    application caught it and raised another exception.
    """
    if error is None:
        return None
    outcomes = _outcomes()
    waiting, seen = [error], {id(error)}
    while waiting:
        one = waiting.pop()
        if isinstance(one, outcomes):
            return one
        linked = [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            linked += one.exceptions
        for each in linked:
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                waiting.append(each)
    unittest = sys.modules.get("unittest.case")
    skips = unittest is not None and isinstance(error, unittest.SkipTest)
    # An exception group may contain a failed assertion beside the cancellation of a sibling task.
    own = isinstance(error, Exception) or broken_promise(error) is not None
    return error if skips or not own else None


def _outcomes() -> tuple[type[BaseException], ...]:
    # Look among the loaded modules only, because a server outside pytest must not import pytest.
    pytest = sys.modules.get("pytest")
    if pytest is None:
        return (KeyboardInterrupt,)
    return (
        KeyboardInterrupt,
        pytest.fail.Exception,
        pytest.skip.Exception,
        pytest.exit.Exception,
    )


def broken_promise(error: BaseException | None) -> AssertionError | None:
    """Return the exception if it is a failed assertion, or the failed assertion that a group
    contains; otherwise None.
    """
    if error is None or isinstance(error, AssertionError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(broken_promise, error.exceptions)), None)
    return None


def raised_by_test(error: BaseException | None) -> BaseException | None:
    """Return the exception of the test itself that a callback raised: an assertion or an outcome.

    Looks through a ``ContractError`` that wraps the callback's exception.
    """
    found = ends_the_test(error) or broken_promise(error)
    if found is None and isinstance(error, ContractError):
        return raised_by_test(error.__cause__)
    return found


def runs_through_test(error: BaseException) -> bool:
    """Return whether the traceback of an exception includes a function of a test file or a
    conftest.

    A test file is a module whose assertions pytest has rewritten, or whose name is ``conftest``,
    ``test_…`` or ``…_test``.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        names = frame.f_globals
        name = str(names.get("__name__", "")).rpartition(".")[2]
        if "@pytest_ar" in names or name == "conftest":
            return True
        if name.startswith("test_") or name.endswith("_test"):
            return True
    return False
