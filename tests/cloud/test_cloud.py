"""Errors of a Cloud, and what it ignores."""

from __future__ import annotations

import gc
import inspect
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import httpx
import pytest
import urllib3

import pytest_fakecloud
from pytest_fakecloud import Cloud, ContractError, KVServer
from pytest_fakecloud.cloud.base import secrets_in, show_same
from pytest_fakecloud.cloud.config import CloudConfig
from pytest_fakecloud.cloud.fake import Fake, Takeover, secrets_of
from pytest_fakecloud.cloud.services import SERVICES
from pytest_fakecloud.core.settings import settings_of
from pytest_fakecloud.core.threads import Dispatcher
from pytest_fakecloud.core.violations import VIOLATION_KINDS
from pytest_fakecloud.http.app import App
from pytest_fakecloud.http.hub import Hub, Mount
from pytest_fakecloud.http.ports import listen

from ..harness import changing_clouds, wait_until
from ..http.test_hub import descriptors
from ..interruptions import interrupted, places


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"process_time": "no"}, "process_time='no' of Cloud must be True or False, or 'autojump'"),
        ({"tls": "x"}, "tls='x' of Cloud must be True or False"),
        ({"share_tls_context": None}, "share_tls_context=None of Cloud must be True or False"),
        ({"seed": []}, r"seed=\[\] of Cloud must be a whole number or a string"),
        ({"seed": 1.5}, "seed=1.5 of Cloud must be a whole number or a string"),
        ({"clock": []}, r"clock=\[\] of Cloud must be 'running' or 'frozen'"),
        ({"now": 5}, "now=5: 5 is not a time"),
        ({"transport": None}, "transport=None of Cloud must be 'socket' or 'inprocess'"),
        ({"delivery": 1}, "delivery=1 of Cloud must be 'driven' or 'background'"),
    ],
)
def test_settings_without_meaning(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Cloud(**settings)


def test_calls_without_meaning() -> None:
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server()
        for call, message in (
            (lambda: kv.on_close(5), "5 is not a function: pass one without arguments"),  # type: ignore[arg-type]
            (lambda: cloud.replay(5), "5 is not a file"),  # type: ignore[arg-type]
        ):
            with pytest.raises(ContractError, match=message):
                call()
        cloud.kv_server(name="second")
    assert kv.closed


def test_a_listener_hears_of_new_handles_until_it_is_stopped() -> None:
    with Cloud() as cloud:
        heard: list[str] = []
        stop = cloud._on_start.add(lambda fake: heard.append(fake.name))
        cloud.kv_server()
        stop()
        stop()
        cloud.broker()
        assert heard == ["kv_server"]


def test_a_fake_whose_start_fails_is_closed() -> None:
    def fails(fake: object) -> None:
        raise LookupError("no listener")

    with Cloud() as cloud:
        cloud._on_start.add(fails)
        with pytest.raises(LookupError):
            cloud.kv_server()
        assert not cloud.fakes()


def test_the_parameters_of_a_cloud_are_its_settings() -> None:
    parameters = inspect.signature(Cloud).parameters
    settings = settings_of(CloudConfig)
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        name: setting.default for name, setting in settings.items()
    }


def test_closing_a_fake_closes_its_official_clients() -> None:
    with Cloud() as cloud:
        redis = cloud.kv_server().client()
        connections = [
            redis._http._client,
            cloud.vector_index().client()._client,
            cloud.broker().client(),
            cloud.queue().client().http._client,
        ]
        redis.ping()
        assert not any(client.is_closed for client in connections)
    assert all(client.is_closed for client in connections)


def test_a_fake_closes_although_a_client_has_another_method_for_it() -> None:
    with Cloud() as cloud:
        kv = cloud.kv_server()
        kv._official(mock.Mock, {"spec": ["shut_down"]}, "http._client.close")
        kv.close()
        assert not kv._exits


def test_each_open_handle_has_a_name_of_its_own() -> None:
    with Cloud() as cloud:
        store = cloud.kv_server(name="store")
        with pytest.raises(ContractError, match="a fake named 'store' is open already"):
            cloud.broker(name="store")
        cloud.kv_server(name="kv_server_2")
        assert [cloud.kv_server().name, cloud.kv_server().name] == ["kv_server", "kv_server_3"]
        store.close()
        assert cloud.broker(name="store").name == "store"


def test_a_delivery_that_does_not_end_is_named_and_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Dispatcher.stop, "__defaults__", (0.05,))
    begun, end = threading.Event(), threading.Event()

    def stuck_handler(request: object) -> int:
        begun.set()
        end.wait(20)
        return 200

    cloud = Cloud(seed=1)
    try:
        queue = cloud.queue()
        queue.destinations.call("https://app.test/hook", stuck_handler)
        queue.publish("https://app.test/hook")
        assert begun.wait(10)
        with pytest.warns(RuntimeWarning, match="background delivery has not ended") as caught:
            cloud.close()
        assert any("stuck_handler" in str(warning.message) for warning in caught)
        assert cloud.closed
        assert not cloud.fakes()
    finally:
        end.set()
        cloud.close()


def test_who_delivers_comes_with_the_first_that_is_to_be_delivered() -> None:
    came = threading.Event()
    with Cloud(seed=1) as cloud:
        cloud.kv_server(), cloud.queue()
        assert cloud._dispatcher is None
        cloud._timekeeper.call_at(
            cloud._timekeeper.now_us(), lambda at_us: came.set(), lane="background"
        )
        assert came.wait(10)
        first = cloud._dispatcher
        cloud._timekeeper.call_at(2**52, lambda at_us: None, lane="background")
        assert cloud._dispatcher is first


def test_nobody_delivers_for_a_closed_cloud() -> None:
    with Cloud(seed=1) as cloud:
        cloud.queue()
    cloud._timekeeper.call_at(cloud._timekeeper.now_us(), lambda at_us: None, lane="background")
    assert cloud._dispatcher is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_out_of_files_is_told_as_such_and_passes() -> None:
    source = """
import resource, socket
from pytest_fakecloud import Cloud, ContractError, KVServer

with Cloud(seed=1) as cloud:
    cloud.kv_server(), cloud.queue(), cloud.vector_index(), cloud.broker()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    taken = []
    try:
        while True:
            taken.append(socket.socket())
    except OSError:
        pass
    open_before = cloud.fakes()
    for start in (cloud.kv_server, cloud.queue, cloud.vector_index, cloud.broker,
                  cloud.callback_capture, cloud.destination):
        try:
            start()
        except ContractError as error:
            print(error)
    assert cloud.fakes() == open_before
    taken.pop().close()
    taken.pop().close()
    assert cloud.kv_server().url
    for each in taken:
        each.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    for line in lines:
        assert "Too many open files" in line
        assert "ulimit -n" in line


def test_what_an_on_close_raises_leaves_nothing_open_or_changed() -> None:
    before = time.time()
    cloud = Cloud(seed=1, now="2020-01-01T00:00:00Z", process_time=True, tls=True)
    first, second = cloud.kv_server(), cloud.queue()
    ended: list[str] = []
    for fake in (first, second):

        def fails(name: str = fake.name) -> None:
            ended.append(name)
            raise RuntimeError(f"no end of {name}")

        fake.on_close(lambda: ended.append("before"))
        fake.on_close(fails)
    with pytest.raises(RuntimeError, match="no end of queue"):
        cloud.close()
    assert ended == ["queue", "before", "kv_server", "before"]
    assert first.closed
    assert second.closed
    assert not cloud.fakes()
    for fake in (first, second):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", int(fake.url.rpartition(":")[2])), 5)
    assert cloud.authority is not None
    assert not Path(cloud.authority.ca_file).exists()
    assert time.time() >= before
    cloud.close()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_close_that_is_interrupted_several_times_can_be_repeated(times: int) -> None:
    with Cloud(seed=1) as cloud:
        queue = cloud.queue()
        errors = [KeyboardInterrupt] * times

        def interrupted() -> None:
            if errors:
                raise errors.pop()

        queue._exits.callback(interrupted)
        while errors:
            with pytest.raises(KeyboardInterrupt):
                queue.close()
        queue.close()
        assert not queue._exits


@pytest.mark.parametrize(
    "first", [lambda fake, other: fake.close(), lambda fake, other: other.close()]
)
def test_an_on_close_function_can_close_fakes(first: Any) -> None:
    with Cloud(seed=1) as cloud:
        fake, other = cloud.kv_server(), cloud.queue()
        ended: list[str] = []
        for closing, last in ((fake, other), (other, fake)):
            closing.on_close(partial(first, closing, last))
            closing.on_close(partial(ended.append, closing.name))
        fake.close()
        other.close()
        assert sorted(ended) == ["kv_server", "queue"]
        assert not cloud.fakes()


def test_a_closed_fake_takes_nothing_that_it_should_close() -> None:
    with Cloud(seed=1) as cloud:
        fakes: list[Any] = [cloud.kv_server(), cloud.vector_index(), cloud.broker(), cloud.queue()]
    for fake in fakes:
        for make in (fake.client, fake.aio.client):
            with pytest.raises(ContractError) as raised:
                make()
            assert str(raised.value) == (
                f"{fake.name} is closed and cannot answer a client: create the client before it "
                f"closes, or start another {fake.name}"
            )
        with pytest.raises(ContractError, match=f"^{fake.name} is closed and will not call"):
            fake.on_close(print)


def test_an_on_close_function_cannot_register_another_one() -> None:
    with Cloud(seed=1) as cloud:
        fake = cloud.kv_server()
        fake.on_close(lambda: fake.on_close(print))
        advice = r"call on_close\(\) before it closes"
        with pytest.raises(ContractError, match=f"^kv_server is closed and .* print>: {advice}$"):
            fake.close()


class NotedLock:
    """A lock, and whether a thread other than that which made it has asked for it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.thread = threading.current_thread()
        self.is_awaited = False

    def __enter__(self) -> None:
        self.is_awaited |= threading.current_thread() is not self.thread
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_closing_a_cloud_closes_a_fake_that_another_thread_is_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cloud = Cloud(seed=1)
    lock = NotedLock()
    monkeypatch.setattr(cloud, "_starting", lock)
    closer = threading.Thread(target=cloud.close)
    open_server = KVServer._open

    def close_while_opening(fake: KVServer, app: App) -> None:
        open_server(fake, app)
        closer.start()
        wait_until(lambda: lock.is_awaited or not closer.is_alive())

    monkeypatch.setattr(KVServer, "_open", close_while_opening)
    server = cloud.kv_server()
    closer.join(5)
    assert cloud.closed
    assert server.closed
    with pytest.raises(ContractError, match="this cloud is closed"):
        cloud.kv_server()


def test_a_fake_has_the_credentials_that_it_takes_over_before_it_accepts_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_mount, seen = Hub.add_mount, []

    def noted(hub: Hub, mount: Mount) -> None:
        seen.append((mount.app.token, mount.app.password))
        add_mount(hub, mount)

    monkeypatch.setattr(Hub, "add_mount", noted)
    with Cloud(seed=1) as cloud:
        credentials = {"token": "a", "_password": "b"}
        cloud._start("kv_server", {}, Takeover(credentials=credentials))
    assert seen == [("a", "b")] * 2


def test_a_port_that_is_taken_leaves_no_part_of_a_fake_open() -> None:
    with Cloud(seed=1) as cloud:
        taken = cloud.kv_server()._mount.port
        with pytest.raises(ContractError, match=f"cannot listen on port {taken}"):
            cloud.queue(port=taken)
        with pytest.raises(ContractError, match=f"cannot listen on port {taken}"):
            cloud.kv_server(database_port=taken)
        assert [fake.name for fake in cloud.fakes()] == ["kv_server"]
        assert list(cloud._timekeeper.moving_call_ends) == []


def test_a_fake_takes_the_listening_sockets_for_its_addresses() -> None:
    sockets = [listen("127.0.0.1", 0) for _ in range(2)]
    first, second = (sock.getsockname()[1] for sock in sockets)
    with Cloud(seed=1) as cloud:
        listeners = {sock.getsockname(): sock for sock in sockets}
        fake = cloud._start(
            "kv_server", {"port": first, "database_port": second}, Takeover(listeners)
        )
        assert [mount.listener for mount in fake._mounts] == sockets
    assert [sock.fileno() for sock in sockets] == [-1, -1]


@pytest.mark.parametrize(
    ("kind", "where", "message"),
    [
        ("unruted", {}, "'unruted' is not a kind of violation; did you mean 'unrouted'"),
        (5, {}, "5 is not a kind of violation. Known kinds: unrouted, "),
        (
            "unrouted",
            {"paht": "/x"},
            "^'paht' is not a field of a violation of kind 'unrouted'; did you",
        ),
        (
            "unmet",
            {"path": "/x"},
            "^'path' is not a field of a violation of kind 'unmet'. Known fields: f",
        ),
        ("unrouted", {"method": "get"}, "methods have capital letters"),
        ("unrouted", {"path": 5}, "path=5 can never match"),
    ],
)
def test_what_can_never_be_is_not_allowed(kind: Any, where: dict[str, Any], message: str) -> None:
    with Cloud(seed=1) as cloud, pytest.raises(ContractError, match=message):
        cloud.allow(kind, **where)


def test_every_violation_there_is_has_the_facts_that_can_be_asked_about() -> None:
    with Cloud(seed=1, delivery="driven") as cloud:
        kv, queue, receiver = cloud.kv_server(), cloud.queue(), cloud.destination()
        urllib3.request("GET", f"{queue.url}/nope", headers=queue.headers)
        queue.publish("https://nowhere.test/x", body=b"")
        queue.run_until_idle()
        kv.faults.drop()
        receiver.server.expect_oneshot_request("/never")
        violations = cloud.violations()
        assert {violation.kind for violation in violations} >= {
            "unrouted",
            "unstubbed",
            "unused_fault",
        }
        for violation in violations:
            assert set(violation.facts) == set(VIOLATION_KINDS[violation.kind]), violation
        assert violations.where(kind="unr*") == [
            unrouted for unrouted in violations if unrouted.kind == "unrouted"
        ]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux does")
@pytest.mark.parametrize("transport", ["socket", "inprocess"])
def test_a_cloud_that_nobody_holds_is_given_back(transport: Any) -> None:
    def drop() -> weakref.ref[Cloud]:
        cloud = Cloud(transport=transport)
        for make in (cloud.kv_server, cloud.vector_index, cloud.broker, cloud.callback_capture):
            make()
        queue = cloud.queue()
        with httpx.Client() as client:
            client.get(f"{queue.url}/v2/keys", headers=queue.headers)
        # The thread that delivers in the background waits for this one.
        queue.publish("https://app.test/", delay="1h")
        return weakref.ref(cloud)

    def dropped() -> None:
        with pytest.warns(
            ResourceWarning, match="<Cloud .*> was garbage-collected without close()"
        ):
            wait_until(partial(_is_gone, drop()))
        wait_until(lambda: changing_clouds() == users)

    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # sockets of clients that earlier tests left open
    gc.freeze()  # The following collections only inspect objects of this test.
    users = changing_clouds()
    dropped()
    before = descriptors()
    for _ in range(3):
        dropped()
    wait_until(lambda: descriptors() <= before)
    wait_until(
        lambda: all(thread.name != "fakecloud-dispatcher" for thread in threading.enumerate())
    )


def _is_gone(cloud: weakref.ref[Cloud]) -> bool:
    gc.collect()
    return cloud() is None


@pytest.mark.parametrize("fixture", SERVICES)
def test_a_closed_cloud_is_freed_without_a_garbage_collection(fixture: str) -> None:
    with Cloud(seed=1) as cloud:
        fake = getattr(cloud, fixture)()
    cloud_is_there, fake_is_there = weakref.ref(cloud), weakref.ref(fake)
    gc.disable()
    try:
        del cloud, fake
        assert cloud_is_there() is None
        if fixture == "kv_server":  # the engines of the other services have cycles
            assert fake_is_there() is None
    finally:
        gc.enable()


def code_of_finalizers(drop: Callable[[], object]) -> list[str]:
    """Return the functions of the package, and the finalizers of ``weakref``, that run while dropped
    objects are freed.
    """
    folder = os.path.dirname(pytest_fakecloud.__file__) + os.sep
    called = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith((folder, weakref.__file__)):
            called.append(code.co_qualname)

    gc.collect()
    sys.setprofile(profile)
    try:
        drop()
        gc.collect()
    finally:
        sys.setprofile(None)
    return called


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("fixture", SERVICES)
def test_freeing_a_closed_cloud_and_its_fakes_runs_no_code(fixture: str, tls: bool) -> None:
    """Python ignores the exception of a signal's handler that arrives in such code."""
    with Cloud(tls=tls) as cloud:
        objects: list[object] = [cloud, getattr(cloud, fixture)()]
        alone: list[Fake] = [getattr(cloud, fixture)()]
        alone[0].close()
        assert code_of_finalizers(alone.clear) == []
    del cloud
    assert code_of_finalizers(objects.clear) == []


def test_freeing_a_cloud_after_an_interrupted_close_runs_no_code() -> None:
    for place in places(Cloud().close):
        cloud = Cloud()
        cloud.kv_server()
        interrupted(cloud.close, place)
        cloud.close()
        objects = [cloud]
        del cloud
        assert code_of_finalizers(objects.clear) == [], place


def test_freeing_an_open_cloud_runs_code_that_closes_it() -> None:
    users = changing_clouds()
    objects: list[object] = [Cloud()]
    with pytest.warns(ResourceWarning, match="was garbage-collected without close"):
        assert "BaseCloud._watch" in code_of_finalizers(objects.clear)
    Cloud().close()  # closes dropped clouds that have no hub
    assert changing_clouds() == users


def test_a_fake_keeps_the_cloud_that_nobody_else_holds() -> None:
    kv = Cloud().kv_server()
    gc.collect()
    with kv.client() as client:
        assert client.set("k", "v")
    deliver: Any = kv._timekeeper.on_background
    deliver.__self__.close()


def test_reports_still_hide_credentials_that_were_rotated() -> None:
    with Cloud() as cloud:
        for fixture in SERVICES:
            fake = getattr(cloud, fixture)()
            for rotate in (name for name in dir(fake) if name.startswith("rotate_")):
                old = secrets_of(fake)
                getattr(fake, rotate)()
                assert old - secrets_of(fake), f"{fixture}.{rotate}() replaced nothing"
                assert old <= secrets_in(cloud), f"{fixture}.{rotate}()"


def test_a_copy_of_a_cloud_does_not_deliver_what_is_due() -> None:
    with Cloud(delivery="driven") as cloud, Cloud(delivery="background") as copy:
        queue, copied = (side.queue() for side in (cloud, copy))
        queue.publish("https://app.test")
        show_same(copy, cloud)
        assert [message.url for message in copied.pending()] == ["https://app.test"]
        assert copy._dispatcher is None


def test_an_unused_fault_is_one_violation_while_the_cloud_closes() -> None:
    counts: list[int] = []
    with Cloud() as cloud:
        kv = cloud.kv_server()
        kv.faults.respond(503)
        kv.on_close(lambda: counts.append(len(cloud.violations())))
        counts.append(len(cloud.violations()))
    assert counts == [1, 1]
    assert len(cloud.violations()) == 1
