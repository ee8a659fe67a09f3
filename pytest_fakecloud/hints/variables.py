"""Hints about environment variables that the application does not have, or that miss the fakes."""

from __future__ import annotations

import ast
import difflib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..cloud.base import BaseCloud
from ..reporting.mask import Mask
from .inspection import chain, frames_of, home, locals_of, place_in, trees
from .missing_requests import FAKE_ADDRESS, fixture_of_client, official_clients, request_of

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
) -> Iterator[tuple[_VariableRead, str]]:
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
    every = (read for file, tree in trees() for read in _variables_of(tree, file))
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


class _VariableRead(NamedTuple):
    """A place where a module reads a variable; ``default`` is empty if it is not a string."""

    file: Path
    line: int
    name: str
    default: str
    at_import: bool

    @property
    def place(self) -> str:
        return place_in(self.file, self.line)


def unread_variables(
    cloud: BaseCloud, fixtures: Iterable[str], log: str, module: ModuleType | None = None
) -> list[str]:
    """Explain a test that uses ``fakecloud_env`` and whose fakes received no request.

    Only code that the test's ``module`` uses, also through others, can be the cause.
    """
    if "fakecloud_env" not in fixtures or cloud.journal.entries:
        return []
    used = None if module is None else _used_by(module)
    used_trees = {file: tree for file, tree in trees() if used is None or str(file) in used}
    requested = [fake.fixture for fake in cloud.fakes()]
    reads = (read for file, tree in used_trees.items() for read in _variables_of(tree, file))
    remarks = [remark for read in reads if (remark := _remark(read, cloud.env))] or [
        f"{place_in(file, line)} imports {package}: request {fixture}"
        for file, tree in used_trees.items()
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


def _remark(read: _VariableRead, env: Mapping[str, str]) -> str:
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


def _fault_of(read: _VariableRead, fakes: Iterable[str]) -> str:
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


def _variables_of(tree: ast.Module, file: Path) -> Iterator[_VariableRead]:
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
            yield _VariableRead(file, node.lineno, name, default, id(node) not in inside)


def _constant(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
