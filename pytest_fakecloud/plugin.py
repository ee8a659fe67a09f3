"""The pytest face: options, ini settings, marker, hooks and fixtures.

Imported in every pytest run of an environment, so it imports pytest only; all else is imported
where it is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .broker.handle import Broker
    from .cloud import Cloud
    from .kv.handle import KVServer
    from .queue.capture import CallbackCapture, Destination
    from .queue.handle import Queue
    from .vector.handle import VectorIndex

CLOUD = pytest.StashKey["Cloud"]()
SERVICE_NAMES = ("kv_server", "vector_index", "broker", "queue")
GENERAL_SETTINGS = ("now", "clock", "seed", "process_time", "strict", "env", "transport")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the command line options and ini settings."""
    group = parser.getgroup("fakecloud")
    group.addoption(
        "--fakecloud-seed",
        metavar="SEED",
        help="random seed of every test's fakes (default: made from the test's node id)",
    )
    group.addoption(
        "--fakecloud-journal",
        choices=("failed", "always", "never"),
        default="failed",
        help="when a test's report shows the journal of its fakes (default: failed)",
    )
    parser.addini(
        "fakecloud_strict",
        "what fails a passing test: true, false, or names out of "
        "'unrouted unstubbed bug unused_fault unmet'",
        default="true",
    )
    parser.addini("fakecloud_clock", "the clock's mode: running or frozen", default="running")
    parser.addini(
        "fakecloud_env",
        "set the official clients' environment variables in every test that uses a fake",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "fakecloud(now=, clock=, seed=, process_time=, strict=, env=, transport=, kv_server={...}, "
        "vector_index={...}, broker={...}, queue={...}): settings of this test's fakes",
    )


# -- settings --------------------------------------------------------------------------------------


def settings_for(item: pytest.Item, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of one test: function > class > module > fakecloud_settings > options > ini.

    Settings of a service are merged key by key. Raises ``pytest.UsageError`` for unknown keys.
    """
    config = item.config
    merged: dict[str, Any] = {
        "clock": None if (mode := config.getini("fakecloud_clock")) == "running" else mode,
        "strict": _strict_words(config.getini("fakecloud_strict")),
        "env": config.getini("fakecloud_env"),
        "seed": config.getoption("--fakecloud-seed") or item.nodeid,
    }
    layers: list[Mapping[str, Any]] = [overrides] if overrides else []
    layers += [marker.kwargs for marker in reversed(list(item.iter_markers("fakecloud")))]
    for marker in item.iter_markers("fakecloud"):
        if marker.args:
            raise pytest.UsageError(
                f"the fakecloud marker takes keywords only, got {marker.args!r}"
            )
    known = (*GENERAL_SETTINGS, *SERVICE_NAMES)
    for layer in layers:
        for name, value in layer.items():
            if name not in known:
                raise pytest.UsageError(
                    f"fakecloud has no setting {name!r}; the settings are: {', '.join(known)}"
                )
            if name in SERVICE_NAMES:
                if not isinstance(value, Mapping):
                    raise pytest.UsageError(
                        f"the setting {name} is a dict of that service's settings, got {value!r}"
                    )
                merged[name] = {**merged.get(name, {}), **value}
            else:
                merged[name] = value
    return merged


def _strict_words(value: object) -> object:
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "1", "yes", "on"):
            return True
        if word in ("false", "0", "no", "off", ""):
            return False
        return word.replace(",", " ").split()
    return value


def _strict_kinds(value: object) -> tuple[str, ...]:
    from .cloud import PROBLEM_KINDS

    value = _strict_words(value)
    if isinstance(value, bool):
        return PROBLEM_KINDS if value else ()
    kinds = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (str(value),)
    unknown = [kind for kind in kinds if kind not in PROBLEM_KINDS]
    if unknown:
        raise pytest.UsageError(
            f"strict={value!r}: {', '.join(map(repr, unknown))} is no kind of problem; "
            f"give a bool or names out of: {', '.join(PROBLEM_KINDS)}"
        )
    return kinds


# -- hooks -----------------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marker with unknown keys even where the test asks for no fixture."""
    if item.get_closest_marker("fakecloud") is not None:
        settings_for(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a passing test, in its call phase, for what it left behind."""
    yield
    cloud = item.stash.get(CLOUD, None)
    # A unittest.TestCase keeps its failure to itself until the report is made.
    if cloud is not None and not getattr(item, "_excinfo", None):
        _check(cloud, item)


def _check(cloud: Cloud, item: pytest.Item) -> None:
    kinds = _strict_kinds(item.stash.get(STRICT, True))
    problems = [problem for problem in cloud.problems if problem.kind in kinds]
    if not problems:
        return
    bug = next((p for p in problems if p.kind == "bug" and p.exception is not None), None)
    text = "\n".join(f"[{problem.kind}] {problem.text}" for problem in problems)
    title = f"fakecloud: the test left {len(problems)} problem(s) behind"
    failure = pytest.fail.Exception(f"{title}\n{text}", pytrace=False)
    if bug is not None:
        raise failure from bug.exception
    raise failure


STRICT = pytest.StashKey[object]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the journal of the test's fakes to its report."""
    report = yield
    cloud = item.stash.get(CLOUD, None)
    when = item.config.getoption("--fakecloud-journal")
    if (
        cloud is not None
        and call.when == "call"
        and (when == "always" or (when == "failed" and report.failed))
    ):
        from .report import section

        report.sections.append(("fakecloud", section(cloud)))
    return report


# -- fixtures --------------------------------------------------------------------------------------


@pytest.fixture
def fakecloud_settings() -> dict[str, Any]:
    """Settings of the fakes, as the marker takes them; override it to set them for many tests."""
    return {}


@pytest.fixture
def fakecloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """The test's Cloud: its clock, its seed, and more fakes than the fixtures give.

    ``fakecloud.clock.advance("24h")`` moves time for all fakes of the test;
    ``fakecloud.kv_server(name="second")`` starts another one at once.
    """
    from .cloud import Cloud

    item = request.node
    settings = settings_for(item, request.getfixturevalue("fakecloud_settings"))
    item.stash[STRICT] = settings["strict"]
    _strict_kinds(settings["strict"])
    with Cloud(
        settings["seed"],
        settings.get("now"),
        settings["clock"],
        settings.get("process_time", False),
        delivery="driven",
    ) as cloud:
        cloud.fixture_settings = settings
        item.stash[CLOUD] = cloud
        if settings["env"]:
            request.getfixturevalue("fakecloud_env")
        yield cloud


@pytest.fixture
def kv_server(fakecloud: Cloud) -> KVServer:
    """A key-value server (Redis' command language over REST), fresh for this test.

    Point code at ``kv_server.url`` and ``kv_server.token``, or take ``kv_server.client()``; look
    inside with ``kv_server.value(key)``, ``.values()``, ``.ttl(key)``.
    """
    handle: KVServer = fakecloud.fixture_handle("kv_server")
    return handle


@pytest.fixture
def vector_index(fakecloud: Cloud) -> VectorIndex:
    """A vector index, fresh for this test.

    Its dimension is that of the first upsert unless the marker sets one; look inside with
    ``vector_index.vectors()``, check with ``assert_upserted`` and ``assert_queried``.
    """
    handle: VectorIndex = fakecloud.fixture_handle("vector_index")
    return handle


@pytest.fixture
def broker(fakecloud: Cloud) -> Broker:
    """A partitioned log with consumer groups, fresh for this test.

    Make topics with ``broker.create_topic("orders", partitions=3)``; look inside with
    ``broker.records("orders")`` and ``broker.group("g")``.
    """
    handle: Broker = fakecloud.fixture_handle("broker")
    return handle


@pytest.fixture
def queue(fakecloud: Cloud) -> Queue:
    """An HTTP message queue that delivers, retries and calls back, fresh for this test.

    Nothing is delivered until the test drives it: ``queue.run_until_idle()``,
    ``queue.advance("24h")``, ``queue.deliver_due()``.
    """
    handle: Queue = fakecloud.fixture_handle("queue")
    return handle


@pytest.fixture
def callback_capture(fakecloud: Cloud) -> CallbackCapture:
    """A receiver of the queue's callbacks and failure callbacks.

    Publish with ``callback_capture.callback_url`` and ``.failure_url``; look at ``.callbacks`` and
    ``.failures``, or wait with ``wait_for_callback()`` and ``wait_for_failure()``.
    """
    handle: CallbackCapture = fakecloud.fixture_handle("callback_capture")
    return handle


@pytest.fixture
def destination(fakecloud: Cloud) -> Destination:
    """A pytest-httpserver with ``.url``, to receive deliveries; unmet expectations fail the test."""
    handle: Destination = fakecloud.fixture_handle("destination")
    return handle


@pytest.fixture
def fakecloud_kv(fakecloud: Cloud) -> KVServer:
    """The same fake as ``kv_server``, by a name no suite has of its own."""
    handle: KVServer = fakecloud.fixture_handle("kv_server")
    return handle


@pytest.fixture
def fakecloud_vector(fakecloud: Cloud) -> VectorIndex:
    """The same fake as ``vector_index``, by a name no suite has of its own."""
    handle: VectorIndex = fakecloud.fixture_handle("vector_index")
    return handle


@pytest.fixture
def fakecloud_broker(fakecloud: Cloud) -> Broker:
    """The same fake as ``broker``, by a name no suite has of its own."""
    handle: Broker = fakecloud.fixture_handle("broker")
    return handle


@pytest.fixture
def fakecloud_queue(fakecloud: Cloud) -> Queue:
    """The same fake as ``queue``, by a name no suite has of its own."""
    handle: Queue = fakecloud.fixture_handle("queue")
    return handle


@pytest.fixture
def fakecloud_env(fakecloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Set the environment variables the official clients read, for every fake of the test.

    A fake started later sets its own at that moment; the first fake of a service has the names.
    """
    seen: set[str] = set()

    def publish(handle: Any) -> None:
        for name, value in handle.env.items():
            if name not in seen:
                seen.add(name)
                monkeypatch.setenv(name, value)

    for handle in fakecloud.handles:
        publish(handle)
    fakecloud.on_start(publish)
    return fakecloud
