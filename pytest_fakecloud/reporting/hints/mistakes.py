"""Hints about common mistakes: unset variables, misspelt names, clocks that do not move."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FrameType
from typing import TYPE_CHECKING, Any

from ...core.wording import did_you_mean
from ...public_names import PUBLIC_NAMES
from .introspection import chain, frames_of, locals_of, root

if TYPE_CHECKING:
    from ...any_cloud import AnyCloud

VARIABLES = {
    "kv_server": (
        "UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN", "KV_REST_API_URL",
        "KV_REST_API_TOKEN", "KV_REST_API_READ_ONLY_TOKEN", "KV_URL", "REDIS_URL",
    ),
    "vector_index": ("UPSTASH_VECTOR_REST_URL", "UPSTASH_VECTOR_REST_TOKEN"),
    "broker": (
        "UPSTASH_KAFKA_REST_URL", "UPSTASH_KAFKA_REST_USERNAME", "UPSTASH_KAFKA_REST_PASSWORD",
    ),
    "queue": (
        "QSTASH_URL", "QSTASH_TOKEN", "QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY",
    ),
}  # fmt: skip
"""The variables that official clients read, by the fixture whose fakes set them."""
_NO_URL = re.compile(
    r"missing an 'http|No scheme supplied|Invalid type for url|Invalid URL|unknown url type"
)
"""Messages of HTTP clients about a URL that contains a missing variable."""
_OURS = f"{__package__.partition('.')[0]}."
_INSTEAD = {
    ("KVServer", "get"): "value(key) reads a key; client().get(key) sends the command",
    ("KVServer", "set"): "load({key: value}) sets a key; client().set(key, value) sends the "
    "command",
    ("Clock", "tick"): "advance(duration) moves the clock",
    ("Clock", "sleep"): "advance(duration) moves the clock",
}
"""Replacements for methods of similar libraries, by their names."""
_OF_PROCESSES = {("subprocess", "CalledProcessError"), ("subprocess", "CompletedProcess")}
_UNITS = re.compile(r"argument '(weeks|days|hours|minutes|seconds|milliseconds)'")
_PATCHERS = {"patch", "setattr", "object"}


def mistakes(cloud: AnyCloud, error: BaseException) -> list[str]:
    """Return the hints about an error that a test of a cloud raised."""
    errors = list(chain(error))
    found = [*_unset(cloud, errors)]
    for one in errors:
        found += _misspelt(one)
    return list(dict.fromkeys([*found, *_clocks(error)]))


def at_import(error: BaseException) -> list[str]:
    """Return the hints about an error that a module raised while pytest was importing it."""
    return _early(_named(list(chain(error)), VARIABLES))


# -- environment variables -------------------------------------------------------------------------


def _unset(cloud: AnyCloud, errors: Sequence[BaseException]) -> Iterator[str]:
    handles = {one.fixture: one.name for one in cloud.handles if one.fixture in VARIABLES}
    for text in (text for error in errors for text in _outputs(error)):
        for fixture, name in handles.items():
            for variable in VARIABLES[fixture]:
                if re.search(rf"\b{variable}\b", text):
                    yield (
                        f"a subprocess had no {variable}: start it with "
                        f"env={{**os.environ, **{name}.env}}"
                    )
                    return
    names = _named(errors, handles)
    if not names and any(_NO_URL.search(str(error)) for error in errors):
        names = [name for name in (VARIABLES[one][0] for one in handles) if name not in os.environ]
    imports = (frame.f_code.co_name for error in errors for frame in frames_of(error))
    if names and "<module>" in imports:
        yield from _early(names)
    elif names:
        yield (
            f"{_are_not_set(names)}: use the fixture fakecloud_env (or fakecloud_env = true in "
            "pytest.ini), which sets the variables before the test"
        )


def _named(errors: Sequence[BaseException], fixtures: Iterable[str]) -> list[str]:
    """Return the unset variables that errors mention, ignoring case: settings libraries use lower
    case.
    """
    texts = [str(one) for one in errors if isinstance(one, LookupError | ValueError | TypeError)]
    words = set(re.findall(r"\w+", " ".join(texts).upper()))
    return [
        name
        for fixture in fixtures
        for name in VARIABLES[fixture]
        if name in words and name not in os.environ
    ]


def _are_not_set(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set"


def _outputs(error: BaseException) -> Iterator[str]:
    values: list[object] = [error]
    if isinstance(error, AssertionError):
        values += locals_of(error)
    for value in values:
        kind = type(value)
        if (kind.__module__, kind.__name__) in _OF_PROCESSES:
            for part in (value.stdout, value.stderr):  # type: ignore[attr-defined]
                yield part.decode("utf-8", "replace") if isinstance(part, bytes) else part or ""


def _early(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    fixtures = [one for one, own in VARIABLES.items() if not set(own).isdisjoint(names)]
    return [
        f"{_are_not_set(names)} when a module that reads it is imported. Start the fakes before any "
        "import; in pytest.ini:",
        "    [pytest]",
        f"    fakecloud_early = {' '.join(fixtures)}",
    ]


# -- names -----------------------------------------------------------------------------------------


def _misspelt(error: BaseException) -> Iterator[str]:
    """Yield hints about attributes and arguments that this package does not have, with their
    correct names.
    """
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


def _clocks(error: BaseException) -> Iterator[str]:
    """Yield hints about libraries that replace the process's time or ``sleep`` but do not move the
    fakes' clock.
    """
    frames = frames_of(error)
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
    """Return whether a function patches ``time.sleep``, with a with-block or a decorator."""
    if frame.f_globals.get("__name__") == "unittest.mock":
        patches = getattr(frame.f_locals.get("patched"), "patchings", ())
        return any(getattr(one, "attribute", None) == "sleep" for one in patches)
    code = frame.f_code
    targets = [one for one in code.co_consts if isinstance(one, str) and one.endswith(".sleep")]
    return bool(targets) and not _PATCHERS.isdisjoint(code.co_names)
