"""Inspection of errors, frames and objects of a test, and of the sources of its application.

Nothing here runs code of the application: an attribute may be a property, an object may be lazy.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from types import (
    BuiltinFunctionType,
    CoroutineType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

from ..cloud.files import local_path, working_folder

# -- errors and objects ----------------------------------------------------------------------------

# Read the attributes through the built-in classes, because subclasses may override them.
_LINKS = [vars(BaseException)[name].__get__ for name in ("__cause__", "__context__")]
_ARGS = vars(BaseException)["args"].__get__
_EXCEPTIONS = vars(BaseExceptionGroup)["exceptions"].__get__


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and contexts, and the errors in its arguments and groups."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        linked_error = waiting.pop()
        if id(linked_error) in seen:
            continue
        seen.add(id(linked_error))
        yield linked_error
        linked = [*(link(linked_error) for link in _LINKS), *_ARGS(linked_error)]
        if issubclass(type(linked_error), BaseExceptionGroup):
            linked += _EXCEPTIONS(linked_error)
        waiting += [candidate for candidate in linked if issubclass(type(candidate), BaseException)]


def frames_of(error: BaseException | None) -> list[FrameType]:
    return [frame for frame, _ in walk_tb(None if error is None else error.__traceback__)]


def locals_of(error: BaseException | None) -> list[object]:
    return [value for frame in frames_of(error) for value in frame.f_locals.values()]


def root(value: Any) -> str:
    """Return the package that defines a module, a function or a value's class."""
    return home(value).partition(".")[0]


def home(value: Any) -> str:
    """Return the name of a module, or of the one that defines a function or a value's class."""
    kind = type(value)  # `isinstance()` would call a property `__class__` of the value
    name: object
    if issubclass(kind, ModuleType):
        name = inspect.getattr_static(value, "__name__", None)
    elif kind is MethodType:
        return home(value.__self__)
    elif kind is FunctionType or kind is BuiltinFunctionType:
        name = value.__module__
    else:
        name = inspect.getattr_static(value, "__module__", None)
    return name if type(name) is str else ""


def package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def packages_of(frames: Iterable[FrameType]) -> set[str]:
    """Return the packages of functions, and those whose objects they name globally."""
    packages = set()
    for frame in frames:
        names = frame.f_globals
        packages.add(package_of(frame))
        packages.update(root(names[name]) for name in frame.f_code.co_names if name in names)
    return packages


def unsent(frames: Iterable[FrameType]) -> list[tuple[str, int]]:
    """Return the coroutines that did not start, by name, and the pipelines with commands that were
    not executed, with their number, among the values that functions name and what these contain.
    """
    frames = [frame for frame in frames if package_of(frame) not in _NOT_SEARCHED]
    waiting = deque(value for frame in frames for names in (frame.f_locals, frame.f_globals)
                    for value in names.values())  # fmt: skip
    seen: dict[int, object] = {}
    names_and_counts = []
    while waiting and len(seen) < _MOST_VALUES:
        value: Any = waiting.popleft()
        kind = type(value)  # `isinstance()` would evaluate lazy objects
        if id(value) in seen or root(kind) in _NOT_SEARCHED:
            continue
        seen[id(value)] = value
        parts = attributes_of(value)
        waiting.extend(value if kind in (list, tuple) else parts.values())
        if kind is CoroutineType:
            if inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
                names_and_counts.append((value.__qualname__, 0))
        elif "Pipeline" in kind.__name__ and root(kind) in ("redis", "upstash_redis"):
            commands = parts.get("command_stack") or parts.get("_command_stack")
            if isinstance(commands, list) and commands:
                names_and_counts.append(("pipeline", len(commands)))
    return names_and_counts


_NOT_SEARCHED = {"_pytest", "pluggy", "pytest_fakecloud"}
_MOST_VALUES = 3000
"""Maximum number of values that are searched for coroutines and pipelines."""


def attributes_of(value: object) -> dict[str, object]:
    """Return the attributes of an object; none of a lazy object, which is not evaluated."""
    if issubclass(type(value), type | ModuleType):
        return {}
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


# -- sources ---------------------------------------------------------------------------------------

_MODULES = 300
"""Maximum number of modules whose source is searched for environment variables."""


def place_in(file: Path, line: int) -> str:
    return f"{local_path(file)}:{line}"


def _sources() -> Iterator[tuple[Path, bytes]]:
    """Yield the sources of the modules below the working directory, with their files."""
    if not (folder := working_folder()):
        return
    here = folder.rstrip(os.sep) + os.sep
    files = {file for module in tuple(sys.modules.values())
             if type(file := getattr(module, "__file__", None)) is str and file.endswith(".py")
             and file.startswith(here) and not file.startswith(sys.prefix)}  # fmt: skip
    for file in sorted(files)[:_MODULES]:
        with suppress(OSError):
            yield Path(file), Path(file).read_bytes()


def trees(containing: re.Pattern[bytes] = re.compile(b"")) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the syntax trees of the modules below the working directory that contain a pattern."""
    for file, source in _sources():
        with suppress(ValueError, SyntaxError):
            yield from [(file, ast.parse(source))] if containing.search(source) else ()
