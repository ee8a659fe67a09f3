"""Raises an exception in the calling thread at a moment at which a signal's handler could run.

CPython runs handlers of signals where a function begins, after a function written in C has returned,
and at the end of a loop's body: not between the two halves of ``with lock:``. A trace function finds
these moments without taking time.
"""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Callable, Container
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import pytest_fakecloud

_NO_MOMENTS = ("<genexpr>", "__del__", "stack_of", "_rejected")
"""A generator that ends early seems to be called, though no handler can run there. CPython prints an
exception of a finalizer and never raises it.
"""
_FOLDER = os.path.dirname(pytest_fakecloud.__file__) + os.sep
Followed: TypeAlias = tuple[ModuleType, ...]
"""Modules of other packages whose lines are places, too."""


class Interruption(KeyboardInterrupt):
    """Stands for Ctrl+C, or a time-out of pytest-timeout. asyncio raises only a KeyboardInterrupt of a
    callback, and reports others.
    """


class Place(NamedTuple):
    """A line at which a handler can run, and the line that calls its function, which may hold other
    locks.
    """

    line: str
    caller: str

    def is_in(self, code: CodeType) -> bool:
        """Return whether the line can be one of a function, which is told by the function's name."""
        return self.line.endswith(f" {code.co_qualname}")

    def __str__(self) -> str:
        return f"{self.line}, called in {self.caller or 'the test'}"


def places(call: Callable[[], object], also: Followed = ()) -> list[Place]:
    """Make a call, and return its places in the order in which it reaches them."""
    reached: dict[Place, None] = {}
    _follow(call, lambda place: reached.setdefault(place), also)
    return list(reached)


def interrupted(
    call: Callable[[], object],
    at: Place,
    also: Followed = (),
    keep: Callable[[Interruption], object] = lambda error: None,
) -> bool:
    """Make a call, raise ``Interruption`` when it reaches a place, and return whether it leaves the
    call. Returns True, too, if the call does not reach the place this time. ``keep`` is called with the
    exception, which refers to all that the call has used.
    """
    raised = False

    def interrupt(place: Place) -> None:
        nonlocal raised
        if place == at:
            raised = True
            sys.settrace(None)
            raise Interruption

    try:
        _follow(call, interrupt, also, at.is_in)
    except Interruption as error:
        keep(error)
        return True
    return not raised


def with_handler(call: Callable[[], object], handler: Callable[[], object]) -> int:
    """Make a call, and run a handler at each moment; return the number of moments."""
    moments = 0

    def handle(place: Place) -> None:
        nonlocal moments
        moments += 1
        handler()

    _follow(call, handle)
    return moments


def _follow(
    call: Callable[[], object],
    reach: Callable[[Place], object],
    also: Followed = (),
    wanted: Callable[[CodeType], bool] = lambda code: True,
) -> None:
    """Make a call, and call ``reach`` at each moment at which a handler of a signal could run in one of
    the functions that are wanted.
    """
    files = {module.__file__ for module in also}
    last: tuple[FrameType, int] | None = None
    """The frame and the offset of the last instruction, if no other frame has run since."""

    def is_followed(code: CodeType) -> bool:
        is_ours = code.co_filename.startswith(_FOLDER) or code.co_filename in files
        return is_ours and code.co_name not in _NO_MOMENTS and wanted(code)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal last
        code = frame.f_code
        if event == "call":
            if not is_followed(code):
                last = None
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            # Not at a generator that is being closed, in which no handler runs before its own code.
            is_moment = frame.f_lasti in _starts(code)
        elif event == "opcode":
            before, last = last, (frame, frame.f_lasti)
            is_moment = before is not None and before[0] is frame and before[1] in _calls(code)
            is_moment = is_moment and _handler(code, before[1]) == _handler(code, frame.f_lasti)
        else:
            last, is_moment = None, False
        if is_moment:
            reach(Place(_line(frame, files), _line(frame.f_back, files)))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def _line(frame: FrameType | None, files: Container[str | None]) -> str:
    """Return the file, line and name of a frame, or an empty string outside of what is followed."""
    file = "" if frame is None else frame.f_code.co_filename
    if frame is None or not (file.startswith(_FOLDER) or file in files):
        return ""
    name = file.removeprefix(_FOLDER)
    return f"{name}:{frame.f_lineno} {frame.f_code.co_qualname}"


@cache
def _calls(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions after which handlers of signals may run."""
    return _offsets(code, "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD")


@cache
def _starts(code: CodeType) -> frozenset[int]:
    """Return the offsets at which a function or a resumed generator starts and runs handlers of signals.

    Python 3.13 has the same offset for a generator that is being closed.
    """
    return _offsets(code, "RESUME")


def _offsets(code: CodeType, *names: str) -> frozenset[int]:
    """Return the offsets of instructions, each of which has two bytes, and so have their caches.

    ``dis.get_instructions()`` takes forty times as long.
    """
    opcodes = {dis.opmap[name] for name in names if name in dis.opmap}
    return frozenset(
        2 * index for index, opcode in enumerate(code.co_code[::2]) if opcode in opcodes
    )


@cache
def _handler(code: CodeType, offset: int) -> int | None:
    """Return the offset of the code that handles an exception of an instruction, None without one."""
    # The table is in no public function of Python 3.11 to 3.14.
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return next((entry.target for entry in entries if entry.start <= offset < entry.end), None)
