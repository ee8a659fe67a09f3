"""Errors of services, misuse by the test, and exceptions that end a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

_PACKAGE = f"{__package__.partition('.')[0]}."


class FakecloudError(Exception):
    """The base class of the exceptions that this package raises in tests."""

    # Tracebacks show the public name. Each public subclass sets it, because it is not inherited.
    __module__ = "pytest_fakecloud"


class ServiceError(FakecloudError):
    """An error response of the real service to a bad request.

    ``status`` is the HTTP status, ``message`` the service's own text, ``headers`` are extra
    response headers. Every service has a subclass, and its app formats the body.
    """

    __module__ = "pytest_fakecloud"

    def __init__(
        self, status: int, message: str, *, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


class ContractError(FakecloudError):
    """The test used a fake, the clock or a setting in an invalid way.

    The message says what was wrong, what was expected and what to do. Clients never receive it.
    """

    __module__ = "pytest_fakecloud"


@contextmanager
def importing(asked: str, extra: str = "") -> Iterator[None]:
    """Turn the import of a missing module in a with-block into a ``ContractError`` about ``asked``.

    ``asked`` is the feature or the setting that needs the module. The error says how to install the
    module, which is a part of this package or belongs to one of its extras.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name)
        package = name.partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise ContractError(
                f"{asked} needs {name}, a part of pytest-fakecloud that is not installed here: "
                "pip install --force-reinstall pytest-fakecloud"
            ) from None
        if not extra:
            raise
        raise ContractError(
            f"{asked} needs {package.replace('_', '-')}: pip install 'pytest-fakecloud[{extra}]'"
        ) from error


class CannotTell(ContractError):
    """Raised if a test's condition depends on data that the journal did not keep."""


def shown(value: object) -> str:
    """Return the repr of an object from the test; only its type if its repr raises."""
    try:
        return repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # pytest.fail() raises a BaseException
        return f"<{type(value).__name__}, whose repr raises>"


def describe_error(error: BaseException) -> str:
    """Return one line about an error; never raises.

    A message that was not written for readers gets the error's type and its source line.
    """
    try:
        text = str(error).partition("\n")[0]
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "str() of it raises"
    if issubclass(type(error), ContractError | OSError) and text:
        return text
    place = ""
    for trace in _traceback_entries(error):
        file = os.path.basename(trace.tb_frame.f_code.co_filename)
        place = f" ({file}:{trace.tb_lineno})"
    return f"{type(error).__name__}: {text}{place}"


def formatted(error: BaseException) -> str:
    """Return an exception with its traceback, as Python prints it."""
    # Imported here, because most processes never format one.
    import traceback

    return "".join(traceback.format_exception(error))


def print_error(error: BaseException) -> None:
    """Print an exception with its traceback to standard error."""
    print(formatted(error), end="", file=sys.stderr)


def _traceback_entries(error: BaseException) -> Iterator[TracebackType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


@contextmanager
def report_failure(failed: str, report: Callable[[str], object]) -> Iterator[None]:
    """Turn an exception in a with-block into one line for ``report``, which begins with ``failed``.

    Reports call code of the test, and an exception in a pytest hook would abort the whole run.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        report(f"{failed}: {describe_error(error)}")


# -- exceptions that end a test --------------------------------------------------------------------


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
    outcomes: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
    # Look among the loaded modules only, because a server outside pytest must not import pytest.
    if (pytest := sys.modules.get("pytest")) is not None:
        outcomes += (pytest.fail.Exception, pytest.skip.Exception, pytest.exit.Exception)
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
    is_failure = isinstance(error, Exception) or broken_promise(error) is not None
    return None if is_failure and not skips else error


def broken_promise(error: BaseException | None) -> AssertionError | None:
    """Return the failed assertion that an exception is or, as a group, contains; else None."""
    if error is None or isinstance(error, AssertionError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(broken_promise, error.exceptions)), None)
    return None


def raised_by_test(error: BaseException | None) -> BaseException | None:
    """Return the test's assertion or outcome that an error is or, as a ``ContractError``, wraps."""
    found = ends_the_test(error) or broken_promise(error)
    if found is None and isinstance(error, ContractError):
        return raised_by_test(error.__cause__)
    return found


def runs_through_test(error: BaseException) -> bool:
    """Return whether a traceback includes a function of a test file or a conftest: a module named
    ``conftest``, ``test_…`` or ``…_test``, or another one outside this package whose assertions
    pytest has rewritten.
    """
    for trace in _traceback_entries(error):
        names = trace.tb_frame.f_globals
        module = str(names.get("__name__", ""))
        if module.startswith(_PACKAGE):
            continue  # pytest also rewrites the modules of plugins
        name = module.rpartition(".")[2]
        if "@pytest_ar" in names or name == "conftest":
            return True
        if name.startswith("test_") or name.endswith("_test"):
            return True
    return False
