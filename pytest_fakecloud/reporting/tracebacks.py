"""Shorten the traceback of a failed test, and inspect its exceptions, frames and objects.

Neither runs code of the application.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from traceback import walk_tb
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any

from ..core.errors import ContractError, ends_the_test
from ..core.recorder import is_library, is_own

_RUNNERS = ("_pytest.", "pluggy.")


def hide_ours(item: Any, call: Any) -> None:
    """Remove this package's frames from a failure, before pytest writes its report.

    Only failed assertions and ``ContractError`` are changed; a bug in a fake keeps its frames.
    ``--full-trace`` keeps all frames. ``item`` and ``call`` are pytest's objects.
    """
    if item.config.getoption("fulltrace"):
        return
    if call.excinfo is not None:
        call.excinfo = _hidden(call.excinfo)
    # A unittest.TestCase keeps its failures in a list until the report.
    kept = getattr(item, "_excinfo", None)
    if isinstance(kept, list):
        kept[:] = map(_hidden, kept)


def _hidden(info: Any) -> Any:
    error: BaseException = info.value
    is_outcome = ends_the_test(error) is error  # such as that of pytest.fail()
    if not is_outcome and not isinstance(error, AssertionError | ContractError):
        return info
    chain = [error, *causes_of(error)]
    rests = [_without_ours(one.__traceback__) for one in chain]
    if not _has_testers(rests[0][0]) or not any(has_ours for _, has_ours in rests):
        return info
    error.__traceback__ = rests[0][0]
    for cause, (rest, _) in zip(chain[1:], rests[1:], strict=True):
        cause.__traceback__ = rest if _has_testers(rest) else None
    return type(info).from_exception(error)


def _without_ours(trace: TracebackType | None) -> tuple[TracebackType | None, bool]:
    """Return a traceback without this package's frames, and whether it had any."""
    entries = []
    has_ours = False
    while trace is not None:
        if is_own(trace.tb_frame):
            has_ours = True
        else:
            entries.append(trace)
        trace = trace.tb_next
    rest: TracebackType | None = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest, has_ours


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the cause or context of an exception, then its own cause or context, and so on."""
    seen = {id(error)}
    cause = error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _has_testers(trace: TracebackType | None) -> bool:
    return any(
        not str(frame.f_globals.get("__name__")).startswith(_RUNNERS)
        and not is_library(frame.f_code.co_filename)
        for frame, _ in walk_tb(trace)
    )


# -- inspection without running the application's code ---------------------------------------------

# Read the attributes through the built-in classes, because subclasses may override them.
_CAUSE = vars(BaseException)["__cause__"].__get__
_CONTEXT = vars(BaseException)["__context__"].__get__
_ARGS = vars(BaseException)["args"].__get__
_EXCEPTIONS = vars(BaseExceptionGroup)["exceptions"].__get__


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and contexts, and the errors in its arguments and groups."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        linked = [_CAUSE(one), _CONTEXT(one), *_ARGS(one)]
        if issubclass(type(one), BaseExceptionGroup):
            linked += _EXCEPTIONS(one)
        waiting += [each for each in linked if issubclass(type(each), BaseException)]


def frames_of(error: BaseException | None) -> list[FrameType]:
    return [frame for frame, _ in walk_tb(None if error is None else error.__traceback__)]


def locals_of(error: BaseException | None) -> list[object]:
    return [value for frame in frames_of(error) for value in frame.f_locals.values()]


def root(value: Any) -> str:
    """Return the package that defines a module, a function or a value's class."""
    kind = type(value)  # `isinstance()` would call a property `__class__` of the value
    name: object
    if issubclass(kind, ModuleType):
        name = inspect.getattr_static(value, "__name__", None)
    elif kind is MethodType:
        return root(value.__self__)
    elif kind is FunctionType or kind is BuiltinFunctionType:
        name = value.__module__
    else:
        name = inspect.getattr_static(value, "__module__", None)
    return name.partition(".")[0] if type(name) is str else ""


def packages_of(frames: Iterable[FrameType]) -> set[str]:
    """Return the packages of functions, and those whose objects they name globally."""
    found = set()
    for frame in frames:
        names = frame.f_globals
        found.add(str(names.get("__name__")).partition(".")[0])
        found.update(root(names[name]) for name in frame.f_code.co_names if name in names)
    return found


def with_attributes(values: Iterable[object]) -> list[tuple[str, object]]:
    """Return values and their attributes, each after the package of its class."""
    every = [one for value in values for one in (value, *attributes_of(value).values())]
    return [(root(type(one)), one) for one in every]


def attributes_of(value: object) -> dict[str, object]:
    """Return the attributes of an object; none of a lazy object, which is not evaluated."""
    if issubclass(type(value), type | ModuleType):
        return {}
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}
