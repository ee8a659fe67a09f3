"""Raises an exception in the calling thread at every moment at which a signal's handler could run.

CPython runs handlers of signals where a function begins, after a function written in C has returned,
and at the end of a loop's body: not between the two halves of ``with lock:``. A trace function finds
these moments without taking time, and ``interrupted()`` raises at one of them.
"""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest_fakecloud

_NO_MOMENTS = ("<genexpr>", "__del__")
"""A generator that ends early seems to be called, though no handler can run there. CPython prints an
exception of a finalizer and never raises it.
"""
_FOLDER = os.path.dirname(pytest_fakecloud.__file__) + os.sep


class Interruption(BaseException):
    """Stands for a time-out of pytest-timeout, or Ctrl+C."""


class Outcome(NamedTuple):
    """What became of an interruption: its place, and whether it left the call. ``place`` is None if
    the call ended before that moment.
    """

    place: str | None
    arrived: bool


def interrupted(call: Callable[[], object], moment: int) -> Outcome:
    """Make a call, and raise ``Interruption`` at its n-th moment inside this package."""
    left, place, arrived = moment, None, False
    last: tuple[FrameType, int] | None = None
    """The frame and the offset of the last instruction, if no other frame has run since."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left, place, last
        code = frame.f_code
        if not code.co_filename.startswith(_FOLDER) or code.co_name in _NO_MOMENTS:
            last = None
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            comes = True
        elif event == "opcode":
            before, last = last, (frame, frame.f_lasti)
            comes = before is not None and before[0] is frame and before[1] in _calls(code)
            comes = comes and _handler(code, before[1]) == _handler(code, frame.f_lasti)
        else:
            last, comes = None, False
        if comes:
            left -= 1
            if left == 0:
                name = code.co_filename.removeprefix(_FOLDER)
                place = f"{name}:{frame.f_lineno} {code.co_qualname}"
                sys.settrace(None)
                raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interruption:
        arrived = True
    finally:
        sys.settrace(before)
    return Outcome(place, arrived)


@cache
def _calls(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions after which handlers of signals may run."""
    names = ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD")
    return frozenset(one.offset for one in dis.get_instructions(code) if one.opname in names)


@cache
def _handler(code: CodeType, offset: int) -> int | None:
    """Return the offset of the code that handles an exception of an instruction, None without one."""
    # The table is in no public function of Python 3.11 to 3.14.
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return next((one.target for one in entries if one.start <= offset < one.end), None)
