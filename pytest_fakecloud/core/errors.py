"""Errors of services, misuse by the test, exceptions that end a test, and the wording of messages."""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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

    The message says what was wrong, what was expected and what to do. The code that made the mistake
    gets it; if it was made in a callback of the test, as in a fault's ``when=``, the client gets a 500.
    """

    __module__ = "pytest_fakecloud"


@contextmanager
def importing(feature: str, extra: str = "") -> Iterator[None]:
    """Turn the import of a missing module in a with-block into a ``ContractError`` about ``feature``.

    ``feature`` is the feature or the setting that needs the module. The error says how to install the
    module, which is a part of this package or belongs to one of its extras. The program of the npm
    package has only some of them, and nothing can be installed for it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name)
        package = name.partition(".")[0]
        if getattr(sys, "frozen", False) and (extra or package == __name__.partition(".")[0]):
            install = f"'pytest-fakecloud[{extra}]'" if extra else "pytest-fakecloud"
            raise ContractError(
                f"{feature} needs {name}, which is not in this program: use the Python package, "
                f"pip install {install}"
            ) from None
        if package == __name__.partition(".")[0]:
            raise ContractError(
                f"{feature} needs {name}, a part of pytest-fakecloud that is not installed here: "
                "pip install --force-reinstall pytest-fakecloud"
            ) from None
        if not extra:
            raise
        raise ContractError(
            f"{feature} needs {package.replace('_', '-')}: pip install 'pytest-fakecloud[{extra}]'"
        ) from error


@contextmanager
def if_installed(part: str) -> Iterator[None]:
    """End a with-block that imports the folder ``part`` of this package, if that is not installed.

    For additions that nobody asks for by name, such as hints. `importing()` is for the others.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != f"{_PACKAGE}{part}":
            raise


class CannotTell(ContractError):
    """Raised if a test's condition depends on data that the journal did not keep."""


def shown(value: object, form: Callable[[Any], str] = repr) -> str:
    """Return the repr, or another form, of an object from the test; only its type if that raises."""
    try:
        return form(value)
    except Exception:  # not a time-out of pytest-timeout, which must end the test
        return f"<{type(value).__name__}, whose repr raises>"


def describe_error(error: BaseException) -> str:
    """Return one line about an error, also if its ``str()`` raises.

    A message that was not written for readers gets the error's type and its source line.
    """
    try:
        text = str(error).partition("\n")[0]
    except Exception:
        text = "str() of it raises"
    if issubclass(type(error), ContractError | OSError) and text:
        return text
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        place = f" ({os.path.basename(frame.f_code.co_filename)}:{line})"
    return f"{type(error).__name__}: {text}{place}"


def formatted(error: BaseException) -> str:
    """Return an exception with its traceback, as Python prints it."""
    return "".join(traceback.format_exception(error))


def print_error(error: BaseException) -> None:
    """Print an exception with its traceback to standard error."""
    print(formatted(error), end="", file=sys.stderr)


class report_failure:
    """Turn an ``Exception`` in a with-block into one line for ``report``, which begins with ``failed``.

    A time-out of pytest-timeout, ``KeyboardInterrupt`` and the like are raised. In a hook of pytest
    (``in_hook``), only ``KeyboardInterrupt`` is: reports call code of the test, whose outcomes would
    abort the whole run there.
    """

    def __init__(
        self, failed: str, report: Callable[[str], object], *, in_hook: bool = False
    ) -> None:
        self._failed = failed
        self._report = report
        self._in_hook = in_hook

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, KeyboardInterrupt):
            return False
        if not self._in_hook and not isinstance(error, Exception):
            return False
        self._report(f"{self._failed}: {describe_error(error)}")
        return True


def report_hook_failure(failed: str, report: Callable[[str], object]) -> report_failure:
    """Return a `report_failure` for code that runs in a hook of pytest."""
    return report_failure(failed, report, in_hook=True)


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
        linked_error = waiting.pop()
        if isinstance(linked_error, outcomes):
            return linked_error
        linked = [linked_error.__cause__, linked_error.__context__]
        if isinstance(linked_error, BaseExceptionGroup):
            linked += linked_error.exceptions
        for cause in linked:
            if cause is not None and id(cause) not in seen:
                seen.add(id(cause))
                waiting.append(cause)
    unittest = sys.modules.get("unittest.case")
    skips = unittest is not None and isinstance(error, unittest.SkipTest)
    # An exception group may contain a failed assertion beside the cancellation of a sibling task.
    is_failure = isinstance(error, Exception) or broken_promise(error) is not None
    return None if is_failure and not skips else error


def broken_by_check(error: BaseException, *, is_disturbed: bool) -> BaseException | None:
    """Return the error by which an exception of a check breaks the promise, or None.

    It is a failed assertion or, after a disturbance, any exception of the application, which the check
    may call: an ``Exception``, or the application's exit. Of the code, only failed assertions break the
    promise.
    """
    ending = ends_the_test(error)
    broken = broken_promise(ending or error)
    if broken is not None or not is_disturbed:
        return broken
    return error if ending is None or (ending is error and isinstance(error, SystemExit)) else None


def chain_of(error: BaseException | None) -> list[BaseException]:
    """Return an exception, its cause or context, the cause or context of that, and so on."""
    errors: dict[int, BaseException] = {}
    while error is not None and id(error) not in errors:
        errors[id(error)] = error
        error = error.__cause__ or error.__context__
    return list(errors.values())


def broken_promise(error: BaseException | None) -> AssertionError | None:
    """Return the failed assertion that an exception is or, as a group, contains; else None."""
    if error is None or isinstance(error, AssertionError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(broken_promise, error.exceptions)), None)
    return None


class Crash(BaseException):
    """Raised in code that ``explore()`` runs to end it like a power cut; ``except Exception`` does not
    catch it.
    """


def is_crash(error: BaseException | None) -> bool:
    """Return whether code ended by a crash, which a task group raises in an exception group."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_crash, error.exceptions))
    return isinstance(error, Crash)


def raised_by_test(error: BaseException | None) -> BaseException | None:
    """Return the test's assertion or outcome that an error is or, as a ``ContractError``, wraps."""
    outcome = ends_the_test(error) or broken_promise(error)
    if outcome is None and isinstance(error, ContractError):
        return raised_by_test(error.__cause__)
    return outcome


def runs_through_test(error: BaseException) -> bool:
    """Return whether a traceback includes a function of a test file or a conftest: a module named
    ``conftest``, ``test_…`` or ``…_test``, or another one outside this package whose assertions
    pytest has rewritten.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        names = frame.f_globals
        module = str(names.get("__name__", ""))
        is_test = re.search(r"(^|\.)(conftest|test_[^.]*|[^.]*_test)$", module) is not None
        # pytest also rewrites the modules of plugins.
        if (is_test or "@pytest_ar" in names) and not module.startswith(_PACKAGE):
            return True
    return False


SHOWN = 200
"""Maximum number of characters of a value that is shown in full."""
_ABSENT = object()


def brief(value: object, length: int = SHOWN) -> str:
    """Format a value for a message: a function by its name, others by repr, cut if too long."""
    text = getattr(value, "__name__", "") if callable(value) else ""
    return cut(text or shown(value), length)


def cut(text: str, length: int = SHOWN) -> str:
    """Return a text, or its beginning and an ellipsis if it is too long."""
    return text if len(text) <= length else f"{text[:length]}…"


def one_line(text: str, length: int = 1000) -> str:
    """Return a message as one line without control characters, cut if too long."""
    beginning = text[: length + 1]
    plain = " ".join("".join(c if c.isprintable() else " " for c in beginning).split())
    return plain if len(text) <= length else f"{plain[:length]}…"


def encodable(text: str) -> str:
    """Return a text with lone surrogates escaped, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 record``, ``2 records``, ``1,000 records``."""
    return f"{count:,} {plural(noun, count)}"


def plural(noun: str, count: int) -> str:
    """Return a noun, in the plural unless the count is 1."""
    return noun if count == 1 else f"{noun}s"


def shortfall(deed: str, used: int, planned: int) -> str:
    """Describe something that happened less often than planned: ``never fired``, ``fired 1 of 2
    planned times``. ``deed`` is the verb in the past tense.
    """
    if not used and planned == 1:
        return f"never {deed}"
    return f"{deed} {used:,} of {planned:,} planned times"


def listed(items: Sequence[str], most: int = 6) -> str:
    """Return the first items, and the number of further ones."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def unknown_name(noun: str, name: object, known_names: Iterable[str], argument: str = "") -> str:
    """Return the message for a name that is not among the known names of ``noun``, such as ``"field
    of a call"``. It begins with ``argument=`` if that is given.
    """
    names = list(known_names)
    named = f"{argument}={brief(name)}" if argument else brief(name)
    article = "an" if noun[0] in "aeiou" else "a"
    return (
        f"{named} is not {article} {noun}{did_you_mean(name, names) or '.'} "
        f"Known {noun.partition(' of ')[0]}s: {listed(names, 40) or 'none'}"
    )


def did_you_mean(word: object, known_words: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` if one of the known words is similar, else an empty string."""
    if not isinstance(word, str):
        return ""
    folded = {known_word.lower(): known_word for known_word in known_words}
    folded_word = word[:100].lower()
    matches = difflib.get_close_matches(folded_word, folded, 3, 0.6)
    # Exchanged letters are the more likely mistake: STE is SET rather than SETEX.
    matches.sort(key=lambda match: sorted(match) != sorted(folded_word))
    return f"; did you mean {folded[matches[0]]!r}?" if matches else ""


def same_json(actual: Any, expected: Any) -> bool:
    """Return whether two JSON values are equal. Unlike ``==``, tell True from 1, and False from 0."""
    return bool(actual == expected) and not _mixes_booleans(actual, expected)


def _mixes_booleans(actual: Any, expected: Any) -> bool:
    if isinstance(actual, dict) and isinstance(expected, dict):
        return any(_mixes_booleans(value, expected.get(name)) for name, value in actual.items())
    if isinstance(actual, list) and isinstance(expected, list):
        return any(map(_mixes_booleans, actual, expected))
    numbers = isinstance(actual, int | float) and isinstance(expected, int | float)
    return numbers and isinstance(actual, bool) is not isinstance(expected, bool)


def differences(actual: Any, expected: Any, place: str) -> Iterator[str]:
    """Describe each difference between two JSON values. Lists of different length are shown whole."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for name in {**expected, **actual}:
            value, other = actual.get(name, _ABSENT), expected.get(name, _ABSENT)
            yield from differences(value, other, f"{place}.{name}")
    elif isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        for number, (value, other) in enumerate(zip(actual, expected, strict=True)):
            yield from differences(value, other, f"{place}[{number}]")
    elif actual is _ABSENT:
        yield f"{place} is absent, not {brief(expected)}"
    elif expected is _ABSENT:
        yield f"{place} is {brief(actual)}, not expected"
    elif same_json(actual, expected):
        return
    elif (
        isinstance(actual, str)
        and isinstance(expected, str)
        and len(actual) + len(expected) > SHOWN
    ):
        pairs = enumerate(zip(actual, expected, strict=False))
        at = next((n for n, (a, b) in pairs if a != b), min(len(actual), len(expected)))
        value, other = brief(actual[at:], 60), brief(expected[at:], 60)
        yield f"{place} from character {at} on is {value}, not {other}"
    else:
        yield f"{place} is {brief(actual)}, not {brief(expected)}"
