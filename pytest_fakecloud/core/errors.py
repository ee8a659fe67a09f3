"""The two kinds of error: what a service would answer, and misuse by the tester."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType, TracebackType


class ServiceError(Exception):
    """An answer the real service would give to a bad request.

    ``status`` is the HTTP status, ``message`` the service's own text, ``headers`` extra response
    headers. Every service subclasses it; its app renders the body in the service's envelope.
    """

    def __init__(
        self, status: int, message: str, *, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


class ContractError(Exception):
    """The tester used a handle, the clock or a setting in a way that has no meaning.

    The text says what came, what was expected and what to do. Never answered to a client.
    """


class CannotTell(ContractError):
    """A question that only the whole of something could answer, of which too little was kept."""


def shown(value: object) -> str:
    """The repr of an object that may be a tester's; only its type where its repr raises."""
    try:
        return repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # what pytest.fail() raises is no Exception
        return f"<{type(value).__name__}, whose repr raises>"


def check_function(value: object, kind: str) -> None:
    """Raise ``ContractError`` for what cannot be called, or returns what nobody would await.

    ``kind`` ends the sentence "give one ...".
    """
    if not callable(value):
        raise ContractError(f"{shown(value)} is not a function: give one {kind}")
    if only_begins(value):
        raise ContractError(
            f"{shown(value)} has to be awaited or iterated, which does not happen here: "
            f"give a function {kind}"
        )


def only_begins(function: object) -> bool:
    """Return whether a call of this does nothing yet: it makes a coroutine or a generator."""
    if inspect.iscoroutinefunction(function):
        return True
    if isinstance(function, FunctionType):
        return bool(function.__code__.co_flags & _BEGINS)
    called = getattr(type(function), "__call__", None)  # noqa: B004
    return any(
        inspect.iscoroutinefunction(each)
        or inspect.isgeneratorfunction(each)
        or inspect.isasyncgenfunction(each)
        for each in (function, called)
    )


_BEGINS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def words_of(error: BaseException) -> str:
    """An error that came up while something was explained, in one line that never raises itself.

    What nobody wrote for a reader has its type, and the place that raised it.
    """
    try:
        text = str(error).partition("\n")[0]
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "its own text raises"
    if issubclass(type(error), ContractError | OSError) and text:
        return text
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"


class telling:
    """A with-block that explains something: what it raises becomes one line and goes no further.

    ``failed`` begins that line, ``tell`` gets it. For reports: explaining calls code of the tester's
    (a ``repr``, a predicate, an error's text), and an error in a hook would end the whole run.
    """

    __slots__ = ("_failed", "_tell")

    def __init__(self, failed: str, tell: Callable[[str], object]) -> None:
        self._failed = failed
        self._tell = tell

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is None or kind is KeyboardInterrupt:
            return False
        self._tell(f"{self._failed}: {words_of(error)}")
        return True
