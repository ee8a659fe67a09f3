"""Hints about common mistakes: misspelt names, and clocks that do not move."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, FrameType
from typing import TYPE_CHECKING, Any

from ...core.wording import did_you_mean
from ...public_names import PUBLIC_NAMES
from .introspection import chain, frames_of, root
from .variables import hints_about_unset_variables

if TYPE_CHECKING:
    from ...base_cloud import BaseCloud

_OURS = f"{__package__.partition('.')[0]}."
_INSTEAD = {
    ("KVServer", "get"): "value(key) reads a key; client().get(key) sends the command",
    ("KVServer", "set"): "load({key: value}) sets a key; client().set(key, value) sends the "
    "command",
    ("Queue", "advance"): "clock.advance(duration) moves the clock and delivers what becomes due",
    ("Destination", "expect_request"): "server.expect_request() adds an expectation",
    ("Clock", "tick"): "advance(duration) moves the clock",
    ("Clock", "sleep"): "advance(duration) moves the clock",
}
"""Replacements for methods of similar libraries, by their names."""
_UNITS = re.compile(r"argument '(weeks|days|hours|minutes|seconds|milliseconds)'")
_PATCHERS = {"patch", "setattr", "object"}


def mistakes(cloud: BaseCloud, error: BaseException) -> list[str]:
    """Return the hints about an error that a test of a cloud raised."""
    errors = list(chain(error))
    found = [*hints_about_unset_variables(cloud, errors)]
    for one in errors:
        found += _misspelt(one)
    frames = frames_of(error)
    return list(dict.fromkeys([*found, *_moved_clocks(frames), *_patched_sleep(frames)]))


# -- names -----------------------------------------------------------------------------------------


def _misspelt(error: BaseException) -> Iterator[str]:
    """Yield hints about misspelt attributes and arguments of this package."""
    if isinstance(error, AttributeError):
        kind, name = type(getattr(error, "obj", None)), getattr(error, "name", None)
        if not kind.__module__.startswith(_OURS) or not isinstance(name, str):
            return
        kind = next((one for one in kind.__mro__ if one.__name__ in PUBLIC_NAMES), kind)
        instead = _INSTEAD.get((kind.__name__, name), "")
        near = did_you_mean(name, [one for one in dir(kind) if not one.startswith("_")])
        if instead or near:
            yield f"{kind.__name__} has no {name}{near}{instead and f': {instead}'}"
    elif isinstance(error, TypeError) and _UNITS.search(str(error)):
        last = [frame.f_code.co_names for frame in frames_of(error)][-1:]
        if last and {"advance", "move_to", "clock"} & set(last[0]):
            yield "advance() takes one duration: advance('1h30m'), a timedelta, or seconds"


# -- clocks ----------------------------------------------------------------------------------------


def _moved_clocks(frames: Sequence[FrameType]) -> Iterator[str]:
    """Yield hints about libraries that move ``time.time()``, but not the fakes' clock."""
    used = {root(time.time), *(package for frame in frames for package in _packages(frame))}
    machine: Any = sys.modules.get("time_machine")
    if machine is not None and machine.escape_hatch.is_travelling():
        used.add("time_machine")
    for package in sorted({"freezegun", "time_machine"} & used):
        yield (
            f"{package} moves time.time() of this process only, and the fakes have a clock of their "
            "own: move it with fakecloud.clock.move_to(), or use "
            "@pytest.mark.fakecloud(process_time=True) instead"
        )


def _patched_sleep(frames: Sequence[FrameType]) -> Iterator[str]:
    """Yield a hint if ``time.sleep()`` is, or may have been, replaced by one that does not wait."""
    is_patched = type(time.sleep) is not BuiltinFunctionType and root(time.sleep) not in (
        "gevent", "eventlet", _OURS.rstrip("."),
    )  # fmt: skip
    if is_patched or any(map(_patches_sleep, frames)):
        yield (
            "time.sleep() is patched, so waiting takes no time, and the clock of the fakes does not "
            "move either: move it with fakecloud.clock.advance()"
        )


def _packages(frame: FrameType) -> Iterator[str]:
    yield str(frame.f_globals.get("__name__")).partition(".")[0]
    for name in frame.f_code.co_names:
        if name in frame.f_globals:
            yield root(frame.f_globals[name])


def _patches_sleep(frame: FrameType) -> bool:
    """Return whether a function patches a name ``sleep``, with a with-block or a decorator."""
    if frame.f_globals.get("__name__") == "unittest.mock":
        patches = getattr(frame.f_locals.get("patched"), "patchings", ())
        return any(getattr(one, "attribute", None) == "sleep" for one in patches)
    code = frame.f_code
    targets = [one for one in code.co_consts if isinstance(one, str) and one.endswith(".sleep")]
    return bool(targets) and not _PATCHERS.isdisjoint(code.co_names)
