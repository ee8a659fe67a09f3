"""Shorten the traceback of a failed test, and inspect its exceptions, frames and objects.

Neither runs code of the application.
"""

from __future__ import annotations

from collections.abc import Iterator
from traceback import walk_tb
from types import TracebackType
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
