"""Strict-mode violations, and exceptions raised by the test itself."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from .errors import ContractError, words_of


@dataclass(frozen=True, slots=True)
class Problem:
    """A strict-mode violation: the reason why a strict test fails.

    ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet``,
    ``rejected_step``, ``assertion`` or ``undelivered``. ``text`` describes what happened, the
    nearest valid alternative, and how to allow it. ``facts`` are the values that ``allow()``
    matches.
    """

    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    exception: BaseException | None = None


class Problems(list[Problem]):
    """The strict-mode violations of one cloud in order of occurrence; only the newest ``keep`` are
    kept.

    Only the first ``keep_exceptions`` exceptions keep their frames, because frames keep alive
    everything that was in use when the exception was raised.
    """

    keep: int = 10_000
    keep_exceptions: int = 100

    def report(
        self, kind: str, text: str, *, exception: BaseException | None = None, **facts: Any
    ) -> Problem:
        """Record a violation."""
        if exception is not None and len(self) >= self.keep_exceptions:
            exception.__traceback__ = exception.__context__ = exception.__cause__ = None
        del self[: max(0, len(self) - self.keep + 1)]
        problem = Problem(kind, shortened(text, _LONGEST_PROBLEM), facts, exception)
        self.append(problem)
        return problem

    def report_raised(self, error: BaseException, where: str, **facts: Any) -> Problem:
        """Record an exception of the test itself that a callback raised (see ``raised_by_test``).

        The text begins with ``where``, a description of the callback's purpose.
        """
        return self.report("assertion", _raised_text(error, where), exception=error, **facts)


def raised_problem(error: BaseException, where: str, **facts: Any) -> Problem:
    """Return the violation that ``Problems.report_raised()`` records."""
    return Problem("assertion", _raised_text(error, where), facts, error)


def _raised_text(error: BaseException, where: str) -> str:
    return (
        f"{where}: a callback of the test raised {words_of(error)}. "
        'To allow it: fakecloud.allow("assertion")'
    )


_LONGEST_PROBLEM = 20_000


def shortened(text: str, most: int = 2000) -> str:
    """Cut a string from an untrusted client to a length that is safe to keep."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


# -- classifying exceptions ------------------------------------------------------------------------


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
