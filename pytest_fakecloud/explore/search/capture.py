"""The calls, log records, warnings and output of a trial, which the journal and pytest capture."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..values.plan import Plan

if TYPE_CHECKING:
    from ...core.recorder import Recorder


class TrialCapture:
    """Discards what the journal and pytest have captured of each trial of an exploration.

    A report shows the log records, warnings and output of the failing schedule only, as it does with
    the calls of the journal. A test that passes shows those of the undisturbed trial.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._forget_shown: Callable[[], object] = lambda: None

    @contextmanager
    def discarding(self, plan: Plan) -> Iterator[None]:
        """Discard what is captured in the block, unless the plan of its trial says otherwise."""
        if plan.keeps == "everything":
            self._forget_shown()
        number, forget = self._recorder.reserve(), _mark()
        if plan.keeps == "output":
            self._forget_shown = forget
        yield
        if plan.keeps != "everything":
            self._recorder.forget_since(number)
        if plan.keeps == "nothing":
            forget()


def _mark() -> Callable[[], None]:
    """Return a function that makes pytest forget what it has captured since then."""
    cuts = [*_cuts_of_logs(), *_cuts_of_warnings(), *_cuts_of_output()]

    def forget() -> None:
        for cut in cuts:
            cut()

    return forget


def _cuts_of_logs() -> Iterator[Callable[[], None]]:
    # Look among the loaded modules only, because an exploration outside pytest must not import it.
    pytest_logging: Any = sys.modules.get("_pytest.logging")
    if pytest_logging is None:
        return
    for handler in logging.getLogger().handlers:
        if isinstance(handler, pytest_logging.LogCaptureHandler):
            log: Any = handler
            yield partial(
                _cut_log, log, log.records, len(log.records), log.stream, log.stream.tell()
            )


def _cut_log(log: Any, records: list[object], number: int, stream: Any, position: int) -> None:
    """Cut a log to its former length, unless the code has cleared it and began another one."""
    del log.records[number if log.records is records else 0 :]
    _cut_stream(log.stream, position if log.stream is stream else 0)


def _cuts_of_warnings() -> Iterator[Callable[[], None]]:
    # catch_warnings(record=True), which pytest uses, replaces this function by the list's append().
    record = getattr(warnings, "_showwarnmsg_impl", None)
    recorded = getattr(record, "__self__", None)
    if isinstance(recorded, list):
        yield partial(_cut_warnings, recorded, len(recorded))


def _cut_warnings(recorded: list[object], number: int) -> None:
    if len(recorded) > number:
        del recorded[number:]
        with warnings.catch_warnings():
            pass  # This makes filters forget which warnings they have already shown.


def _cuts_of_output() -> Iterator[Callable[[], None]]:
    for stream in (sys.stdout, sys.stderr):
        if type(stream).__module__ == "_pytest.capture":
            stream.flush()
            yield partial(_cut_stream, stream, stream.tell())


def _cut_stream(stream: Any, position: int) -> None:
    """Cut a stream to a former length; the code may have read and emptied it in the meantime."""
    if stream.closed:
        return
    stream.flush()
    if stream.tell() > position:
        stream.seek(position)
        stream.truncate()
