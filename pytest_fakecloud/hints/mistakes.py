"""Hints about mistakes: calls that were not made, databases, misspelt names, clocks."""

from __future__ import annotations

import inspect
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType
from typing import Any

from .. import _PUBLIC_NAMES
from ..cloud.base import BaseCloud, context_of
from ..core.errors import counted, did_you_mean, listed
from .dropped_pipelines import dropped_pipelines
from .inspection import chain, frames_of, package_of, packages_of, root, unsent
from .variables import hints_about_unset_variables

_OURS = f"{__package__.partition('.')[0]}."
_INSTEAD = {
    ("KVServer", "get"): "value(key) reads a key; client().get(key) sends the command",
    ("KVServer", "set"): "load({key: value}) sets a key; client().set(key, value) sends the "
    "command",
    ("Queue", "advance"): "clock.advance(duration) moves the clock and delivers what becomes due",
    ("Queue", "deliveries"): "attempts() returns the delivery attempts",
    ("Destination", "expect_request"): "server.expect_request() adds an expectation",
    ("Clock", "tick"): "advance(duration) moves the clock",
    ("Clock", "sleep"): "advance(duration) moves the clock",
}
"""Replacements for methods of similar libraries, by their names."""
_RETURNED = re.compile(r"(?P<listed>Results\[)?(?P<kind>\w+)\]?")
_UNITS = re.compile(r"argument '(weeks|days|hours|minutes|seconds|milliseconds)'")
_PATCHERS = {"patch", "setattr", "object"}


def mistakes(cloud: BaseCloud, error: BaseException, functions: Iterable[object] = ()) -> list[str]:
    """Return the hints about an error that a test of a cloud raised, which uses ``functions``."""
    errors = list(chain(error))
    hints = [*hints_about_unset_variables(cloud, errors)]
    for linked_error in errors:
        hints += _misspelt(linked_error)
    frames = frames_of(error)
    hints += [*_never_sent(frames), *dropped_pipelines(cloud, frames, functions)]
    hints += [
        *_other_connections(cloud),
        *_replaced_time(cloud, frames),
        *_moved_clocks(cloud, frames),
        *_patched_sleep(frames),
    ]
    return list(dict.fromkeys(hints))


# -- calls that were not made, and their answers ----------------------------------------------------

_NOT_AWAITED = re.compile(r"coroutine '(.+)' was never awaited")


def _never_sent(frames: Sequence[FrameType]) -> Iterator[str]:
    """Yield hints about coroutines that nothing awaited, and pipelines that were not executed."""
    # pytest collects the warnings of a test in a list. Python warns when it frees such a coroutine.
    warned = getattr(getattr(warnings, "_showwarnmsg_impl", None), "__self__", ())
    for warning in warned if isinstance(warned, list) else ():
        if match := _NOT_AWAITED.search(str(getattr(warning, "message", ""))):
            place = f"{Path(warning.filename).name}:{warning.lineno}"
            yield f"{place}: {match[1]}() was never awaited, so it did nothing"
    for name, commands in unsent(frames):
        if commands:
            was = "was" if commands == 1 else "were"
            yield f"a {name} has {counted(commands, 'command')} that {was} not executed"
        else:
            yield f"{name}() was never awaited, so it did nothing"


# -- databases -------------------------------------------------------------------------------------


def _other_connections(cloud: BaseCloud) -> Iterator[str]:
    """Yield a hint if a rollback ends what the test writes to the database, and the application has run
    in another thread: Django opens a connection for each thread (documentation).
    """
    names = [fake.name for fake in cloud.fakes() if fake._ran_in_another_thread()]
    if names and _is_in_transaction():
        yield (
            f"{listed(names, 3)} delivered in the background, in this test or an earlier one, so the "
            "application ran in another thread, with another connection to Django's database: its rows "
            "outlive the test, and it does not see the test's rows. Return "
            '{"queue": {"delivery": "driven"}} from the fixture fakecloud_session_settings, or start '
            'the queue with delivery="driven"'
        )


def _is_in_transaction() -> bool:
    """Return whether a connection of this thread to a database of Django is in a transaction."""
    connections = getattr(sys.modules.get("django.db"), "connections", None)
    if connections is None:
        return False
    with suppress(Exception):  # the project may have no settings
        return any(connection.in_atomic_block for connection in connections.all())
    return False


# -- names -----------------------------------------------------------------------------------------


def _misspelt(error: BaseException) -> Iterator[str]:
    if isinstance(error, AttributeError):
        value, name = getattr(error, "obj", None), getattr(error, "name", None)
        kind = type(value)
        if not kind.__module__.startswith(_OURS) or not isinstance(name, str):
            return
        kind = next((base for base in kind.__mro__ if base.__name__ in _PUBLIC_NAMES), kind)
        names = _public(kind)
        instead = _INSTEAD.get((kind.__name__, name), "") or ", ".join(_elsewhere(value, name))
        near = "" if instead else did_you_mean(name, names)
        if not instead and not near:
            instead = ", ".join(
                public_name for public_name in names if name in public_name.split("_")
            )
        if instead or near:
            yield f"{kind.__name__} has no {name}{near}{instead and f': {instead}'}"
    elif isinstance(error, TypeError):
        last = [frame.f_code.co_names for frame in frames_of(error)][-1:]
        if _UNITS.search(str(error)) and last and {"advance", "move_to", "clock"} & set(last[0]):
            yield "advance() takes one duration: advance('1h30m'), a timedelta, or seconds"


def _public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def _elsewhere(value: object, name: str) -> Iterator[str]:
    """Yield how to reach a member of that name on a part of an object, or on a thing that it lists:
    for ``delete_topic``, that is ``topic(…).delete()``.
    """
    for lookup, way, kind in _parts(value):
        for member in _public(kind):
            is_of = name.startswith(f"{member}_") and name.endswith(lookup.removesuffix("s"))
            if member == name or is_of:
                is_method = inspect.isfunction(getattr(kind, member))
                yield f"{way}.{member}{'()' if is_method else ''}"


def _parts(value: object) -> Iterator[tuple[str, str, type]]:
    """Yield the name, the way to and the class of an object's parts and of what its methods return."""
    for name in _public(type(value)):
        member = inspect.getattr_static(type(value), name)
        method = member.fget if isinstance(member, property) else member
        returned = _RETURNED.fullmatch(
            str(getattr(method, "__annotations__", {}).get("return", ""))
        )
        # Other methods that return such a thing, as assertions do, are not where a reader looks for it.
        if returned and name.replace("_", "").removesuffix("s") in returned["kind"].lower():
            kind = getattr(sys.modules[_OURS.rstrip(".")], returned["kind"], None)
            if isinstance(kind, type):
                way = f"{name}(…)" if inspect.isfunction(member) else name
                yield name, f"{way}.only()" if returned["listed"] else way, kind
    for name, part in getattr(value, "__dict__", {}).items():
        bases = {kind.__name__ for kind in type(part).__mro__}
        if not name.startswith("_") and not bases.isdisjoint(_PUBLIC_NAMES):
            yield name, name, type(part)


# -- clocks ----------------------------------------------------------------------------------------


def _moved_clocks(cloud: BaseCloud, frames: Sequence[FrameType]) -> Iterator[str]:
    """Yield hints about libraries that move ``time.time()``, which a frozen clock does not follow."""
    if cloud.clock.mode != "frozen":
        return
    used = {root(time.time), *packages_of(frames)}
    machine: Any = sys.modules.get("time_machine")
    if machine is not None and machine.escape_hatch.is_travelling():
        from ..process.process_time import has_other_travels

        # The process time of a cloud uses time-machine as well.
        if has_other_travels():
            used.add("time_machine")
    for package in sorted({"freezegun", "time_machine"} & used):
        yield (
            f"{package} moves time.time() of this process only, and the clock of the fakes is frozen: "
            "move it with fakecloud.clock.move_to(), or use "
            "@pytest.mark.fakecloud(process_time=True) instead"
        )


def _replaced_time(cloud: BaseCloud, frames: Sequence[FrameType]) -> Iterator[str]:
    """Yield hints about a ``time.time()`` of the test that the running clock could not follow, or
    whose values it may have taken.
    """
    freeze = "freeze it with fakecloud.clock.freeze(), or @pytest.mark.fakecloud(clock='frozen')"
    if replaced := context_of(cloud).timekeeper.replaced:
        yield f"{replaced}; the running clock of the fakes then used the real time: {freeze}"
    elif cloud.clock.mode == "running" and any(
        package_of(frame) == "unittest"
        and getattr(frame.f_locals.get("self"), "_mock_name", "") == "time"
        for frame in frames[-1:]
    ):
        yield f"the running clock of the fakes also calls the mock of time.time(): {freeze}"


def _patched_sleep(frames: Sequence[FrameType]) -> Iterator[str]:
    """Yield a hint if ``time.sleep()`` is, or may have been, replaced by one that does not wait."""
    if _is_patched(time.sleep) or any(map(_patches_sleep, frames)):
        yield (
            "time.sleep() is patched, so waiting takes no time, and the clock of the fakes does not "
            "move either: move it with fakecloud.clock.advance()"
        )


def _is_patched(sleep: Any) -> bool:
    """Return whether a function in the place of ``time.sleep()`` may return at once."""
    if type(sleep) is BuiltinFunctionType:
        return False
    from ..process.replace import original_of

    # Other code can put a replacement of this package back, which then calls the original.
    sleep = original_of(sleep)
    if type(sleep) is staticmethod:
        sleep = sleep.__func__
    if type(sleep) is BuiltinFunctionType or root(sleep) in ("gevent", "eventlet"):
        return False
    # That of ``process_time="autojump"`` moves the clock. It has the names of the original.
    names = sleep.__globals__ if type(sleep) is FunctionType else {}
    return not str(names.get("__name__")).startswith(_OURS)


def _patches_sleep(frame: FrameType) -> bool:
    """Return whether a function patches a name ``sleep``, with a with-block or a decorator."""
    if frame.f_globals.get("__name__") == "unittest.mock":
        patches = getattr(frame.f_locals.get("patched"), "patchings", ())
        return any(getattr(patch, "attribute", None) == "sleep" for patch in patches)
    code = frame.f_code
    targets = [
        constant
        for constant in code.co_consts
        if isinstance(constant, str) and constant.endswith(".sleep")
    ]
    return bool(targets) and not _PATCHERS.isdisjoint(code.co_names)
