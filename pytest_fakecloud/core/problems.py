"""Findings that fail a strict test, and the exceptions that belong to the test itself."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from .errors import ContractError, words_of


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a strict test fails for.

    ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet``, ``rejected_step``,
    ``assertion`` or ``undelivered``;
    ``text`` says what came, what was nearest and how to allow it; ``facts`` are what ``allow``
    matches on.
    """

    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    exception: BaseException | None = None


class Problems(list[Problem]):
    """The problems of one cloud, in the order they came: the newest ``keep`` at most.

    The exceptions of the first ``keep_exceptions`` keep their frames, which hold all that was under
    way when they were raised.
    """

    keep: int = 10_000
    keep_exceptions: int = 100

    def report(
        self, kind: str, text: str, *, exception: BaseException | None = None, **facts: Any
    ) -> Problem:
        """Remember one more problem."""
        if exception is not None and len(self) >= self.keep_exceptions:
            exception.__traceback__ = exception.__context__ = exception.__cause__ = None
        del self[: max(0, len(self) - self.keep + 1)]
        problem = Problem(kind, shortened(text, _LONGEST_PROBLEM), facts, exception)
        self.append(problem)
        return problem

    def report_raised(self, error: BaseException, where: str, **facts: Any) -> Problem:
        """Remember an exception of the test's own that a callback raised (see ``raised_by_test``).

        ``where`` begins the text, and is what the callback was called for.
        """
        return self.report("assertion", _raised_text(error, where), exception=error, **facts)


def raised_problem(error: BaseException, where: str, **facts: Any) -> Problem:
    """Return the problem that ``Problems.report_raised`` remembers."""
    return Problem("assertion", _raised_text(error, where), facts, error)


def _raised_text(error: BaseException, where: str) -> str:
    return (
        f"{where}: a callback of the test raised {words_of(error)}. "
        'To allow it: fakecloud.allow("assertion")'
    )


_LONGEST_PROBLEM = 20_000


def shortened(text: str, most: int = 2000) -> str:
    """A text a stranger wrote, short enough to be kept."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


# -- whose exception it is -------------------------------------------------------------------------


def ends_the_test(error: BaseException | None) -> BaseException | None:
    """Return the exception that must end the test as itself; None for the application's own failure.

    An ``Exception`` is the application's own failure. Everything else ends the test: the outcomes of
    pytest (``fail``, which pytest-timeout calls inside the code under test, ``skip``, ``xfail``,
    ``exit``), ``unittest.SkipTest``, ``KeyboardInterrupt`` and ``SystemExit``. An outcome of pytest
    or a ``KeyboardInterrupt`` also counts inside an exception group, and where the application has
    caught it and raised another exception.
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
    # A group may hold a failed assertion beside the cancellation of what ran next to it.
    own = isinstance(error, Exception) or broken_promise(error) is not None
    return error if skips or not own else None


def _outcomes() -> tuple[type[BaseException], ...]:
    # Looked up among the loaded modules, since a server outside of pytest must not import it.
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
    """Return the failed assertion that an exception is or, as a group, holds; else None."""
    if error is None or isinstance(error, AssertionError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(broken_promise, error.exceptions)), None)
    return None


def raised_by_test(error: BaseException | None) -> BaseException | None:
    """Return the exception of the test's own that a callback raised: an assertion, or an outcome.

    A ``ContractError`` that a callback's exception was wrapped in is looked through.
    """
    found = ends_the_test(error) or broken_promise(error)
    if found is None and isinstance(error, ContractError):
        return raised_by_test(error.__cause__)
    return found


def runs_through_test(error: BaseException) -> bool:
    """Return whether a function of a test file or a conftest is on an exception's traceback.

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
