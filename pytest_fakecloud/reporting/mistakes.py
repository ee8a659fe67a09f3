"""Hints about mistakes: calls that were not made, misspelt names, clocks, environment variables."""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .. import _PUBLIC_NAMES
from ..cloud.base import BaseCloud
from ..cloud.files import local_path, working_folder
from ..core.errors import counted, did_you_mean
from .missing_requests import (
    FAKE_ADDRESS,
    chain,
    fixture_of_client,
    frames_of,
    home,
    locals_of,
    official_clients,
    package_of,
    packages_of,
    request_of,
    root,
    unsent,
)
from .values import Mask

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


def mistakes(cloud: BaseCloud, error: BaseException) -> list[str]:
    """Return the hints about an error that a test of a cloud raised."""
    errors = list(chain(error))
    hints = [*hints_about_unset_variables(cloud, errors)]
    for linked_error in errors:
        hints += _misspelt(linked_error)
    frames = frames_of(error)
    hints += [*_never_sent(frames), *_dropped_pipelines()]
    hints += [
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


_PIPELINE = re.compile(rb"\.(pipeline|multi)\(")


def _dropped_pipelines() -> Iterator[str]:
    """Yield hints about functions that create a pipeline, and neither execute it nor pass it on."""
    hints: dict[int, str] = {}
    for file, tree in _trees(_PIPELINE):
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            inside = [*ast.walk(function)]
            assignments = [
                node for node in inside if isinstance(node, ast.Assign) and _opens_pipe(node)
            ]
            names = {ast.unparse(assignment.targets[0]) for assignment in assignments}
            used = [node for node in inside if isinstance(node, ast.Attribute)]
            bases = {id(attribute.value) for attribute in used}
            loads = [node for node in inside if isinstance(node, ast.Name) and node.id in names]
            passed = [
                name for name in loads if isinstance(name.ctx, ast.Load) and id(name) not in bases
            ]
            if (
                assignments
                and not passed
                and not any(attribute.attr.startswith("exec") for attribute in used)
            ):
                # An inner function follows those around it.
                says = f"{function.name}() does not execute the pipeline that it creates"
                hints[id(assignments[0])] = f"{_place(file, assignments[0].lineno)}: {says}"
    yield from hints.values()


def _opens_pipe(node: ast.Assign) -> bool:
    called = node.value.func if isinstance(node.value, ast.Call) else None
    is_pipe = isinstance(called, ast.Attribute) and called.attr in ("pipeline", "multi")
    return is_pipe and isinstance(node.targets[0], ast.Name)


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
        if not name.startswith("_") and type(part).__name__ in _PUBLIC_NAMES:
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
    if replaced := cloud._context.clock.replaced:
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


# -- environment variables -------------------------------------------------------------------------

VARIABLES = {
    "kv_server": (
        "UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN", "KV_REST_API_URL",
        "KV_REST_API_TOKEN", "KV_REST_API_READ_ONLY_TOKEN", "KV_URL", "REDIS_URL",
    ),
    "vector_index": ("UPSTASH_VECTOR_REST_URL", "UPSTASH_VECTOR_REST_TOKEN"),
    "broker": ("UPSTASH_KAFKA_REST_URL", "UPSTASH_KAFKA_REST_USERNAME",
               "UPSTASH_KAFKA_REST_PASSWORD"),
    "queue": ("QSTASH_URL", "QSTASH_TOKEN", "QSTASH_CURRENT_SIGNING_KEY",
              "QSTASH_NEXT_SIGNING_KEY"),
}  # fmt: skip
"""The variables that official clients read, by the fixture whose fakes set them."""
_NO_URL = re.compile(
    r"missing an 'http|No scheme supplied|Invalid type for url|Invalid URL|unknown url type"
)
"""Messages of HTTP clients about a URL that contains a missing variable."""
_OF_PROCESSES = {("subprocess", "CalledProcessError"), ("subprocess", "CompletedProcess")}
_READERS = {"environ", "environ.get", "getenv"}
"""Expressions that read a variable, without the ``os.`` before them."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCHEMES = {"redis", "rediss", "http", "https"}
_MODULES = 300
"""Maximum number of modules whose source is searched for environment variables."""
_MOST = 8
"""Maximum number of variables that a hint names."""
_UNCONNECTED = re.compile(r"\b(?:Connect\w*Error|Connection refused)\b")
_OF_CONNECTIONS = re.compile(r"Connect|Timeout|URL|Schema|Protocol|OSError|gaierror")
"""Parts of the names of errors that clients raise if they cannot reach a server."""


# -- unset -----------------------------------------------------------------------------------------


def at_import(error: BaseException) -> list[str]:
    """Return the hints about an error that a module raised while pytest was importing it."""
    return _early(_named(list(chain(error)), VARIABLES))


def hints_about_unset_variables(cloud: BaseCloud, errors: Sequence[BaseException]) -> Iterator[str]:
    """Yield hints about variables that a subprocess, an imported module or the test did not have."""
    fakes = {fake.fixture: fake.name for fake in cloud.fakes() if fake.fixture in VARIABLES}
    missing = _missing_in_subprocess(fakes, errors)
    if missing is not None:
        fixture, variable = missing
        env = f"{{**os.environ, **{fakes[fixture]}.env}}"
        yield f"a subprocess had no {variable}: start it with env={env}"
        return
    names = _named(errors, fakes)
    if not names and any(_NO_URL.search(str(error)) for error in errors):
        names = [
            name for name in (VARIABLES[fixture][0] for fixture in fakes) if name not in os.environ
        ]
    if names and _during_import(errors):
        yield from _early(names)
    elif names:
        yield (
            f"{_are_not_set(names)}: use the fixture fakecloud_env (or fakecloud_env = true in "
            "pytest.ini), which sets the variables before the test"
        )


def _missing_in_subprocess(
    fixtures: Iterable[str], errors: Sequence[BaseException]
) -> tuple[str, str] | None:
    """Return the fixture and the name of a variable that the output of a subprocess mentions."""
    output = "\n".join(text for error in errors for text in _outputs(error))
    for fixture in fixtures:
        for variable in VARIABLES[fixture]:
            if re.search(rf"\b{variable}\b", output):
                return fixture, variable
    return None


def _named(errors: Sequence[BaseException], fixtures: Iterable[str]) -> list[str]:
    """Return the unset variables that errors mention, often in lower case."""
    texts = [
        str(error) for error in errors if isinstance(error, LookupError | ValueError | TypeError)
    ]
    words = set(re.findall(r"\w+", " ".join(texts).upper()))
    return [
        name
        for fixture in fixtures
        for name in VARIABLES[fixture]
        if name in words and name not in os.environ
    ]


def _during_import(errors: Sequence[BaseException]) -> bool:
    frames = (frame for error in errors for frame in frames_of(error))
    return any(frame.f_code.co_name == "<module>" for frame in frames)


def _are_not_set(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set"


def _outputs(error: BaseException) -> Iterator[str]:
    values: list[Any] = [error, *(locals_of(error) if isinstance(error, AssertionError) else [])]
    for value in values:
        kind = type(value)
        if (kind.__module__, kind.__name__) in _OF_PROCESSES:
            for part in (value.stdout, value.stderr):
                yield part.decode("utf-8", "replace") if isinstance(part, bytes) else part or ""


def _early(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    fixtures = [fixture for fixture, own in VARIABLES.items() if not set(own).isdisjoint(names)]
    return [
        f"{_are_not_set(names)} when a module that reads it is imported. Start the fakes before any "
        "import; in pytest.ini:",
        "    [pytest]",
        f"    fakecloud_early = {' '.join(fixtures)}",
    ]


# -- of fakes that the test does not request -------------------------------------------------------


def unrequested_fakes(cloud: BaseCloud, error: BaseException, fixtures: Iterable[str]) -> list[str]:
    """Explain an error of a client whose service has no fake in a test that uses ``fixtures``."""
    requested = {fake.fixture: fake for fake in cloud.fakes()}
    others = [fixture for fixture in VARIABLES if fixture not in requested]
    errors = list(chain(error))
    names = _named(errors, others)
    if names and _during_import(errors):
        return _early(names)
    reasons = [(f"{name} is not set", _fixture_of(name)) for name in names]
    missing = None if reasons else _missing_in_subprocess(others, errors)
    if missing is not None:
        reasons = [(f"a subprocess had no {missing[1]}", missing[0])]
    reasons = reasons or [
        (f"{read.place} reads {read.name}, which {fault}", _fixture_of(read.name))
        for read, fault in _reads_behind(errors, others)
    ]
    reasons = reasons or [
        (f"{package} called {address}", fixture)
        for package, address, fixture in official_clients(errors)
        if fixture in others and not FAKE_ADDRESS.search(address)
    ]
    if not reasons:
        return []
    fixtures_to_request = " and ".join(dict.fromkeys(fixture for _, fixture in reasons))
    if "fakecloud_env" in fixtures or any(
        os.environ.get(VARIABLES[name][0]) == fake.url
        for name, fake in requested.items()
        if name in VARIABLES
    ):
        advice = ": fakecloud_env sets only the variables of the fakes that a test requests"
    else:
        advice = " and fakecloud_env, which sets the variables of the fakes of a test"
    return [
        f"request {fixtures_to_request}{advice}",
        *(f"    {reason}" for reason in list(dict(reasons))[:_MOST]),
    ]


def _fixture_of(name: str) -> str:
    """Return the fixture whose fakes set a variable; empty for an unknown one."""
    return next((fixture for fixture, names in VARIABLES.items() if name in names), "")


def _reads_behind(
    errors: Sequence[BaseException], fixtures: Sequence[str]
) -> Iterator[tuple[_Read, str]]:
    """Yield the reads of variables that led to a failed connection, each with what is wrong."""
    # The error has the address that was read, or it shows that there was no address, or that the
    # called server is not a fake, and the read is in a function of the traceback.
    failed = [
        error
        for error in errors
        if _OF_CONNECTIONS.search(" ".join(kind.__name__ for kind in type(error).__mro__))
        or _NO_URL.search(str(error))
    ]
    if not failed:
        return
    names = {name for fixture in fixtures for name in VARIABLES[fixture]}
    called = " ".join(f"{request_of(error)} {error}" for error in failed)
    has_no_address = any(_NO_URL.search(str(error)) for error in failed)
    requests = [request for error in failed if (request := request_of(error))]
    called_others = bool(requests) and not FAKE_ADDRESS.search(" ".join(requests))
    codes = [frame.f_code for error in errors for frame in frames_of(error)]
    every = (read for file, tree in _trees() for read in _variables_of(tree, file))
    for read in every:
        fault = _fault_of(read, ()) if read.name in names else ""
        if not fault:
            continue
        here = [code for code in codes if code.co_filename == str(read.file)]
        inside = any(read.line in {line for _, _, line in code.co_lines()} for code in here)
        address = urlsplit(os.environ.get(read.name, read.default)).netloc.rpartition("@")[2]
        if (
            (address and _has_address(called, address))
            or (has_no_address and (inside or (here and read.at_import)))
            or (called_others and inside)
        ):
            yield read, fault


# -- read by the application -----------------------------------------------------------------------


class _Read(NamedTuple):
    """A place where a module reads a variable; ``default`` is empty if it is not a string."""

    file: Path
    line: int
    name: str
    default: str
    at_import: bool

    @property
    def place(self) -> str:
        return _place(self.file, self.line)


def _place(file: Path, line: int) -> str:
    return f"{local_path(file)}:{line}"


def unread_variables(
    cloud: BaseCloud, fixtures: Iterable[str], log: str, module: ModuleType | None = None
) -> list[str]:
    """Explain a test that uses ``fakecloud_env`` and whose fakes received no request.

    Only code that the test's ``module`` uses, also through others, can be the cause.
    """
    if "fakecloud_env" not in fixtures or cloud.journal.entries:
        return []
    used = None if module is None else _used_by(module)
    trees = {file: tree for file, tree in _trees() if used is None or str(file) in used}
    requested = [fake.fixture for fake in cloud.fakes()]
    reads = (read for file, tree in trees.items() for read in _variables_of(tree, file))
    remarks = [remark for read in reads if (remark := _remark(read, cloud.env))] or [
        f"{_place(file, line)} imports {package}: request {fixture}"
        for file, tree in trees.items()
        for line, package in _imports(tree)
        if (fixture := fixture_of_client(package)) and fixture not in requested
    ]
    if remarks:
        return ["no fake received a request:", *(f"    {remark}" for remark in remarks[:_MOST])]
    failed = _UNCONNECTED.search(log)
    log_has = f"; the log has {failed[0]}" if failed else ""
    others = ", ".join(fixture for fixture in VARIABLES if fixture not in requested)
    unrequested = f"use a fake that the test does not request ({others}), or " if others else ""
    return [
        f"no fake received a request{log_has}; the application may {unrequested}read other variables "
        "than fakecloud_env sets:",
        f"    {', '.join(sorted(cloud.env))}",
    ]


def _remark(read: _Read, env: Mapping[str, str]) -> str:
    """Explain how a variable that the application reads misses the fakes; empty if it may not."""
    reads = f"{read.place} reads {read.name}"
    if read.name in env:
        return f"{reads} when it is imported" if read.at_import else ""
    families = tuple({name.partition("_")[0] + "_" for name in env})
    fixture = _fixture_of(read.name)
    is_related = fixture or _is_address(read.default) or read.name.startswith(families)
    if read.name not in os.environ and not is_related:
        return ""
    fakes = {place[0] for url in env.values() if (place := FAKE_ADDRESS.search(url))}
    fault = _fault_of(read, fakes)
    if not fault:
        return ""
    if fixture:
        return f"{reads}, which {fault}: request {fixture}, with which fakecloud_env sets it"
    # The most similar name, however different it is.
    similar = difflib.get_close_matches(read.name, sorted(env), 1, cutoff=0)
    instead = f"; fakecloud_env sets {similar[0]}" if similar else ""
    return f"{reads}, which {fault}{instead}"


def _fault_of(read: _Read, fakes: Iterable[str]) -> str:
    """Return why the value of a variable leads to no fake; empty if it may lead to one."""
    value = os.environ.get(read.name)
    if value is None:
        has_address = _is_address(read.default)
        used = f" (so its default {Mask().text(read.default)} is used)" if has_address else ""
        return f"is not set{used}"
    if not _is_address(value) or any(_has_address(value, fake) for fake in fakes):
        return ""
    return "is set to another address"


def _has_address(text: str, address: str) -> bool:
    """Return whether a text contains an address, and not only another one that begins with it."""
    return re.search(rf"(?<![\w.]){re.escape(address)}(?!\d)", text) is not None


def _is_address(text: str) -> bool:
    return text.partition("://")[0] in _SCHEMES


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


def _trees(containing: re.Pattern[bytes] = re.compile(b"")) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the syntax trees of the modules below the working directory that contain a pattern."""
    for file, source in _sources():
        with suppress(ValueError, SyntaxError):
            yield from [(file, ast.parse(source))] if containing.search(source) else ()


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, (node.module or "").partition(".")[0]


def _used_by(module: ModuleType) -> set[str]:
    """Return the files of a module and of those whose objects it uses, directly or through others."""
    files: set[str] = set()
    waiting = [module]
    while waiting:
        module = waiting.pop()
        file = vars(module).get("__file__")
        if type(file) is not str or file in files or file.startswith(sys.prefix):
            continue
        files.add(file)
        names = set[str]()
        for value in vars(module).values():
            names.add(home(value))
            if type(value) is FunctionType:  # It may import modules when it runs.
                names.update(value.__code__.co_names)
        used = [sys.modules[name] for name in names if name in sys.modules]
        waiting += [
            used_object for used_object in used if issubclass(type(used_object), ModuleType)
        ]
    return files


def _variables_of(tree: ast.Module, file: Path) -> Iterator[_Read]:
    """Yield the variables that a module reads from ``os`` by literal names."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, _FUNCTIONS)
        for part in (function.body if isinstance(function.body, list) else [function.body])
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            reader, arguments = node.value, [node.slice]
        elif isinstance(node, ast.Call):
            reader, arguments = node.func, node.args
        else:
            continue
        name = _constant(arguments[0]) if arguments else ""
        if name and ast.unparse(reader).rpartition("os.")[2] in _READERS:
            default = _constant(arguments[1]) if len(arguments) > 1 else ""
            yield _Read(file, node.lineno, name, default, id(node) not in inside)


def _constant(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
