"""The two kinds of errors: error responses of a service, and misuse by the test."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType


class ServiceError(Exception):
    """An error response of the real service to a bad request.

    ``status`` is the HTTP status, ``message`` the service's own text, ``headers`` are extra
    response headers. Every service has a subclass, and its app formats the body as the service
    does.
    """

    def __init__(
        self, status: int, message: str, *, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


class ContractError(Exception):
    """The test used a fake, the clock or a setting in an invalid way.

    The message says what was wrong, what was expected and what to do. Clients never receive it.
    """


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
    """Return a one-line description of an error; never raises.

    If the error's message was not written for readers, its type is put before the message and its
    source line after it.
    """
    try:
        text = str(error).partition("\n")[0]
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "str() of it raises"
    if issubclass(type(error), ContractError | OSError) and text:
        return text
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"


class report_failure:
    """A context manager that turns an exception into one line of text and suppresses it.

    The line begins with ``failed`` and is passed to ``report``. Reports use it because they call code
    of the test (a ``repr``, a predicate, an exception's ``__str__``), and an exception in a pytest
    hook would abort the whole run.
    """

    __slots__ = ("_failed", "_report")

    def __init__(self, failed: str, report: Callable[[str], object]) -> None:
        self._failed = failed
        self._report = report

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is None or kind is KeyboardInterrupt:
            return False
        self._report(f"{self._failed}: {describe_error(error)}")
        return True
