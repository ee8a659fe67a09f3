"""Each function of a report raises an exception in turn; the report is still made, and shows the
error.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from types import CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
import redis
from qstash import Receiver
from qstash.errors import SignatureError

import pytest_fakecloud.queue.attempt_reports
import pytest_fakecloud.queue.signatures
import pytest_fakecloud.reporting
from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.services import services_by_word
from pytest_fakecloud.pytest_run.outcomes import report_on
from pytest_fakecloud.pytest_run.run import TestState

PACKAGE = pytest_fakecloud.reporting
OTHERS = [
    "pytest_fakecloud.hints",
    "pytest_fakecloud.last_pass",
    "pytest_fakecloud.inspect",
    *(
        f"pytest_fakecloud.{service}.{folder}"
        for service in services_by_word()
        for folder in ("inspect", "report")
    ),
]
BESIDE = {
    pytest_fakecloud.queue.attempt_reports: ("exchange", "_failure", "_published"),
    pytest_fakecloud.queue.signatures: (
        "_watched", "_failed", "signature_details", "_compared", "_environment", "_as_served",
        "_reserialized",
    ),
}  # fmt: skip
"""Functions outside the package that only reports use, by the beginnings of their names. They run
during a delivery.
"""
LEFT_OUT = {"applications", "views"}
"""Modules that run before a report is made."""
OF_THE_PAGE = {"page", "as_json", "private_files"}
PROTECTING = {"write_index"}
"""Functions that protect a run from exceptions of the others."""
BROKE = "it broke"
BROKEN: list[str] = []


def modules() -> Iterator[ModuleType]:
    for package in (PACKAGE, *map(importlib.import_module, OTHERS)):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if LEFT_OUT.isdisjoint(module.name.split(".")):
                yield importlib.import_module(module.name)
    yield from BESIDE


def builders() -> dict[str, FunctionType]:
    """Return every function and method of those modules, as ``module:name``."""
    functions = {}
    for module in modules():
        owners = [module, *(member for member in vars(module).values() if isinstance(member, type))]
        for owner in owners:
            for name, value in vars(owner).items():
                own = getattr(value, "__module__", "") == module.__name__
                if own and isinstance(value, FunctionType) and name not in PROTECTING:
                    inner = getattr(value, "__wrapped__", value)
                    # The code of a closure can only be replaced by the code of another closure.
                    wanted = name.startswith(BESIDE.get(module, ""))
                    if wanted and not name.startswith("__") and not inner.__code__.co_freevars:
                        functions[f"{module.__name__}:{value.__qualname__}"] = inner
    return functions


@contextmanager
def broken(name: str, function: FunctionType) -> Iterator[None]:
    """Replace the code of a function with code that records its name and raises an exception."""
    space: dict[str, Any] = {}
    own = function.__code__
    source = (
        "def other(*given, **named):\n"
        f"    __import__('sys').modules[{__name__!r}].BROKEN.append({name!r})\n"
        f"    raise RuntimeError({BROKE!r})\n"
    )
    if own.co_flags & inspect.CO_GENERATOR:
        source += "    yield\n"  # the code of a generator must replace that of a generator
    exec(source, space)
    BROKEN.clear()
    function.__code__ = space["other"].__code__
    try:
        yield
    finally:
        function.__code__ = own


@contextmanager
def called() -> Iterator[set[CodeType]]:
    """Record the code of all functions that this thread calls.

    A function that is not called need not be broken.
    """
    codes: set[CodeType] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(record)
    try:
        yield codes
    finally:
        sys.setprofile(None)


def use_vector_index(cloud: Cloud) -> None:
    vector_index = cloud.vector_index()
    for path, body in (
        ("upsert", {"id": "a", "vector": [1, 0], "metadata": {"n": "1"}}),
        ("query", {"vector": [1, 0], "topK": 1, "filter": "n = 1"}),
        ("query/none", {"vector": [1, 0], "topK": 1}), ("delete", ["zz"]), ("fetch", {"ids": ["a"]}),
    ):  # fmt: skip
        httpx.post(f"{vector_index.url}/{path}", json=body, headers=vector_index.headers)


def use_broker(cloud: Cloud) -> None:
    broker = cloud.broker()
    broker.create_topic("t", partitions=2)
    client = broker.client()
    early = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": "false"}
    client.post("/produce/t", json=[{"value": "v"}, {"value": "w"}])
    client.get("/consume/g/i/t", headers=early)
    client.post("/commit/g/i", json={"topic": "t", "partition": 0, "offset": 9})


def use_kv_server(cloud: Cloud) -> None:
    kv_server = cloud.kv_server()
    for command in (
        ["SET", "lock:a", "me", "NX"], ["SET", "s", "1", "EX", "9"], ["SET", "s", "None"],
        ["GET", "carts:a"], ["HSET", "cart:a", "f", "1"], ["SCAN", "0"], ["EVAL", "return 1", "0"],
        ["EXPIREAT", "s", "1782896400"], ["PUBLISH", "a", "x"],
    ):  # fmt: skip
        httpx.post(kv_server.url, json=command, headers=kv_server.headers)
    pipeline = [["SET", "a", "x"], ["INCR", "a"]]
    httpx.post(f"{kv_server.url}/pipeline", json=pipeline, headers=kv_server.headers)
    httpx.post(f"{kv_server.url}/nowhere", headers={"Authorization": "Bearer no"})
    with redis.Redis.from_url(kv_server.database_url) as native, native.pipeline() as pipe:
        pipe.set("a", "1").get("a").execute()
    kv_server.faults.respond(503, command="GET")
    with suppress(httpx.HTTPError):
        httpx.post(kv_server.url, json=["GET", "a"], headers=kv_server.headers)


def deliver(cloud: Cloud) -> None:
    """Deliver messages to a handler that raises and to one that rejects the signature."""
    queue = cloud.queue()

    def handler(request: Any) -> None:
        raise KeyError(request.json()["id"])

    def refuse(request: Any) -> int:
        with suppress(SignatureError):
            Receiver("a" * 32, "b" * 32).verify(
                signature=request.headers.get("Upstash-Signature"),
                body="{}",
                url="https://b.example.com",
            )
        return 401

    queue.destinations.call("https://a.example.com/x", handler)
    queue.destinations.call("https://a.example.com/y", refuse)
    queue.destinations.respond("https://a.example.com/z", (308, "", {"Location": "/z"}))
    queue.destinations.accept("https://a.example.com/cb")
    for place in "xyz":
        headers = {**queue.headers, "Upstash-Callback": "https://a.example.com/cb"}
        url = f"{queue.url}/v2/publish/https://a.example.com/{place}"
        httpx.post(url, json={"n": 1}, headers={**headers, "Upstash-Retries": "1"})
    cron = {**queue.headers, "Upstash-Cron": "0 9 * * *"}
    httpx.post(f"{queue.url}/v2/schedules/https://a.example.com/y", headers=cron)
    queue.deliver_due()


def use_all(cloud: Cloud) -> None:
    """Make calls of every kind that a report shows, in one report."""
    use_kv_server(cloud)
    use_vector_index(cloud)
    use_broker(cloud)
    deliver(cloud)


USES = (use_broker, use_vector_index, deliver, use_kv_server, use_all)
"""Functions that make calls, those whose report is short first. A function of a report is broken in the
first report that calls it.
"""


def told(cloud: Cloud, folder: Path | None) -> str:
    """Return the section that pytest shows for a failed test, made in the same way as in the
    plugin.
    """
    run = SimpleNamespace(
        owners={},
        test=TestState(requested_cloud=cloud, has_run=True),
        options=SimpleNamespace(
            recordings=None, journal_when="failed", timelines=folder, traces=None
        ),
        hints=lambda cloud, item: [],
    )
    config = SimpleNamespace(cache=None)
    item = SimpleNamespace(
        nodeid="test_a.py::test_it",
        module=sys,
        obj=getattr(sys.modules.get("own_shop"), "sell", None),
        user_properties=[],
        config=config,
    )
    try:
        raise AssertionError("own reason")
    except AssertionError as error:
        call = SimpleNamespace(when="call", excinfo=SimpleNamespace(value=error))
    report = SimpleNamespace(
        failed=True, passed=False, longrepr="E   own reason", sections=[], caplog=""
    )
    report_on(run, item, call, report)  # type: ignore[arg-type]
    return "\n".join(text for _, text in report.sections)


def cloud() -> Cloud:
    return Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven")


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import a module with mistakes, and let it be all that reports read.

    They would read the modules of this suite otherwise, as many as this process has imported.
    """
    file = tmp_path / "own_shop.py"
    file.write_text(
        "import redis\n"
        "client = redis.Redis.from_url('redis://127.0.0.1')\n"
        "def sell():\n"
        "    pipe = client.pipeline()\n"
        "    pipe.decr('stock')\n"
    )
    module = ModuleType("own_shop")
    module.__file__ = str(file)
    exec(compile(file.read_text(), file, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "own_shop", module)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("application")
def test_a_report_is_made_whatever_breaks(tmp_path: Path) -> None:
    silent, heard = [], set()
    waiting = builders()
    for use in USES:
        with cloud() as played:
            use(played)
            with called() as codes:
                whole = told(played, tmp_path)
            assert BROKE not in whole
            used = [name for name, function in waiting.items() if function.__code__ in codes]
            for name in used:
                of_the_page = name.partition(":")[0].rpartition(".")[2] in OF_THE_PAGE
                rmtree(tmp_path / "pages", ignore_errors=True)
                with broken(name, waiting.pop(name)):
                    text = told(played, tmp_path / "pages" if of_the_page else None)
                    text += "".join(file.read_text() for file in tmp_path.glob("pages/**/*.html"))
                    heard.update(BROKEN)
                    if BROKEN and BROKE not in text:
                        silent.append(name)
    assert "sell() does not execute the pipeline" in whole
    assert silent == []
    # Alone it is 451; results that earlier tests have left in caches are not made again.
    assert len(heard) > 300


@pytest.mark.slow
def test_a_delivery_is_made_whatever_breaks() -> None:
    def left() -> object:
        return [*logging.getLogger().handlers, Receiver.verify]

    before = left()
    heard, silent = set(), []
    for name, function in builders().items():
        if not name.startswith(tuple(module.__name__ for module in BESIDE)):
            continue
        with cloud() as played:
            shown = ""
            with broken(name, function):
                try:
                    deliver(played)
                except RuntimeError as error:
                    shown = str(error)
                is_broken = bool(BROKEN)
            heard.update(BROKEN)
            if is_broken and BROKE not in shown + told(played, None):
                silent.append(name)
        assert left() == before, f"{name} left something behind in the process"
    assert silent == []
    assert len(heard) > 5
