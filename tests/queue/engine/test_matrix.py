"""Driving time, in every way a test may be set up, under a watchdog.

Timekeeper (running, frozen) x where the destination runs (a server in a thread, an ASGI application in
the running loop, in-process, another process) x what else goes on.  The application does what the
message tells it to, so all of them are the same application.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import http.server
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import freezegun
import pytest
import responses
import time_machine

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.handle import Queue

WATCHDOG = 25.0
PAST = "2001-02-03T04:05:06Z"
FOLLOW_UP = "https://follow-up.example.com/"

#: What an application does with a message; also run in another process, so self-contained.
APP = textwrap.dedent(
    """
    import http.client, json

    def act(body):
        told = json.loads(body)
        if told.get("do") is None:
            return 200
        host, port = told["host"].split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request(
            told["method"], told["path"], told.get("body"), {"Authorization": told["auth"]}
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        good = answer.status in told["statuses"] and text.startswith(told["starts"])
        return 200 if good else 500
    """
)
_names: dict[str, Any] = {}
exec(APP, _names)
act: Callable[[bytes], int] = _names["act"]

SERVER = APP + textwrap.dedent(
    """
    import http.server, sys

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(act(body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    if __name__ == "__main__":
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    """
)


@pytest.fixture(scope="module")
def other_process() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    yield f"http://127.0.0.1:{port}/hook"
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def thread() -> Iterator[str]:
    names: dict[str, Any] = {"__name__": "server"}
    exec(SERVER, names)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), names["Handler"])
    server.daemon_threads = True
    runner = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    runner.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook"
    server.shutdown()
    server.server_close()
    runner.join()


IN_PROCESS = "https://in-process.example.com"
IN_LOOP = "https://in-loop.example.com"


def wsgi_app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    status = act(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    start_response(f"{status} Whatever", [("Content-Length", "0")])
    return []


async def asgi_app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    event = await receive()
    # The application's own call must not stop the loop it runs in.
    status = await asyncio.to_thread(act, event["body"])
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def on_watch(work: Callable[[], Any]) -> Any:
    """Run under the watchdog: what takes longer than it may is a failure, not a hang."""
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            errors.append(error)

    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    runner.join(WATCHDOG)
    assert not runner.is_alive(), f"still running after {WATCHDOG:g} s"
    if errors:
        raise errors[0]
    return result[0]


def tools(condition: str) -> AbstractContextManager[Any]:
    if condition == "responses":
        return responses.RequestsMock(assert_all_requests_are_fired=False)
    if condition == "freezegun":
        return freezegun.freeze_time(PAST)
    if condition == "time-machine":
        return time_machine.travel(PAST, tick=False)
    return nullcontext()


def instruction(condition: str, cloud: Cloud, queue: Queue) -> dict[str, Any]:
    """What the application is told to do while it is being called."""
    if condition == "callback":
        return {
            "do": "publish",
            "host": queue.url.removeprefix("http://"),
            "method": "POST",
            "path": f"/v2/publish/{FOLLOW_UP}",
            "body": "again",
            "auth": f"Bearer {queue.token}",
            "statuses": [201],
            "starts": '{"messageId"',
        }
    if condition == "long-poll":
        cloud.clock.wait_cap = 0.1
        broker = cloud.broker(topics={"orders": 1})
        login = base64.b64encode(f"{broker.username}:{broker.password}".encode()).decode()
        asked = {"topic": "orders", "partition": 0, "offset": 0, "timeout": 30_000}
        return {
            "do": "poll",
            "host": broker.url.removeprefix("http://"),
            "method": "POST",
            "path": "/fetch",
            "body": json.dumps(asked),
            "auth": f"Basic {login}",
            "statuses": [200],
            "starts": "[]",
        }
    return {}


CLOCKS = ("running", "frozen")
PLACES = ("thread", "asyncio", "in-process", "other-process")
CONDITIONS = ("callback", "long-poll", "responses", "freezegun", "time-machine")


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("clock", CLOCKS)
def test_driving(clock: Any, place: str, condition: str, thread: str, other_process: str) -> None:
    url = {
        "thread": thread,
        "other-process": other_process,
        "in-process": IN_PROCESS + "/hook",
        "asyncio": IN_LOOP + "/hook",
    }[place]

    def work() -> None:
        now = "2026-01-01T00:00:00Z"
        with tools(condition), Cloud(now=now, clock=clock, delivery="driven") as cloud:
            queue = cloud.queue(attempt_cap=20)
            queue.destinations.wsgi(IN_PROCESS, wsgi_app)
            queue.destinations.asgi(IN_LOOP, asgi_app)
            queue.destinations.accept(FOLLOW_UP)
            told = instruction(condition, cloud, queue)
            first = queue.publish(url, json=told, delay="1h")
            in_loop = place == "asyncio"
            attempts = asyncio.run(_advance(queue)) if in_loop else queue.advance("2h")
            assert [one.status for one in attempts] == [200] * len(attempts)
            assert first.state == "delivered"
            waited = (attempts[0].at - first.created).total_seconds()
            assert waited == pytest.approx(3600, abs=0.001)
            expected = 2 if condition == "callback" else 1
            assert len(attempts) == expected
            # Time went where it was told to, however long the application took.
            assert (cloud.clock.now() - first.created).total_seconds() >= 7200
            assert cloud.problems == []

    on_watch(work)


async def _advance(queue: Queue) -> Any:
    return await queue.aio.advance("2h")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("clock", CLOCKS)
def test_driving_in_the_background(clock: Any, place: str, thread: str, other_process: str) -> None:
    url = {
        "thread": thread,
        "other-process": other_process,
        "in-process": IN_PROCESS + "/hook",
        "asyncio": IN_LOOP + "/hook",
    }[place]

    def work() -> None:
        with Cloud(now="2026-01-01T00:00:00Z", clock=clock) as cloud:
            queue = cloud.queue(attempt_cap=20)
            queue.destinations.wsgi(IN_PROCESS, wsgi_app)
            queue.destinations.asgi(IN_LOOP, asgi_app)
            queue.destinations.accept(FOLLOW_UP)
            told = instruction("callback", cloud, queue)
            at_once = queue.publish(url, json=told)
            later = queue.publish(url, json={}, delay="1h")
            settled = threading.Event()
            for _ in range(2000):
                if at_once.state == "delivered" and queue.messages(
                    url=FOLLOW_UP, state="delivered"
                ):
                    break
                settled.wait(0.01)
            assert at_once.state == "delivered"
            assert queue.messages(url=FOLLOW_UP).only().state == "delivered"
            assert later.state == "pending"
            queue.advance("1h")
            assert later.state == "delivered"

    on_watch(work)


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_plain_form_on_a_loop_that_an_attempt_needs(clock: Any) -> None:
    """A documented end: the cap, with words that name the awaitable form."""

    async def whole(queue: Queue) -> Any:
        server = await asyncio.start_server(_answer_ok, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        queue.publish(f"http://127.0.0.1:{port}/hook", retries=0)
        attempts = queue.deliver_due()
        server.close()
        return attempts

    def work() -> None:
        with Cloud(clock=clock, delivery="driven") as cloud:
            queue = cloud.queue(attempt_cap=0.1)
            attempt = asyncio.run(whole(queue)).only()
            assert attempt.status is None
            assert "await queue.aio" in str(attempt.exception)

    on_watch(work)


async def _answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("place", ["in-process", "asyncio"])
def test_advancing_inside_a_handler_is_a_contract_error(clock: Any, place: str) -> None:
    def work() -> None:
        with Cloud(clock=clock, delivery="driven") as cloud:
            queue = cloud.queue()
            queue.destinations.call(IN_PROCESS, lambda request: queue.clock.advance("1s"))
            queue.publish(IN_PROCESS + "/")

            def drive() -> None:
                asyncio.run(_advance(queue)) if place == "asyncio" else queue.advance("2h")

            with pytest.raises(ContractError, match="cannot be called from inside a handler"):
                drive()

    on_watch(work)


def test_a_client_of_the_fake_is_served_while_time_is_moved() -> None:
    def work() -> None:
        with Cloud(now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
            queue = cloud.queue()
            answered: list[int] = []
            host, port = queue.url.removeprefix("http://").split(":")

            def handler(request: object) -> int:
                done = threading.Event()

                def elsewhere() -> None:
                    connection = http.client.HTTPConnection(host, int(port), timeout=20)
                    headers = {"Authorization": f"Bearer {queue.token}"}
                    connection.request("GET", "/v2/events", headers=headers)
                    answered.append(connection.getresponse().status)
                    connection.close()
                    done.set()

                threading.Thread(target=elsewhere).start()
                return 200 if done.wait(4) else 500

            queue.destinations.call(IN_PROCESS, handler)
            queue.publish(IN_PROCESS + "/")
            assert queue.advance("1s").only().status == 200
            assert answered == [200]

    on_watch(work)


def test_many_clients_while_deliveries_go_on_in_the_background() -> None:
    def work() -> None:
        with Cloud() as cloud:
            queue = cloud.queue()
            came: list[str] = []
            queue.destinations.call(IN_PROCESS, lambda request: came.append(request.text))
            host, port = queue.url.removeprefix("http://").split(":")
            headers = {"Authorization": f"Bearer {queue.token}"}
            path = f"/v2/enqueue/orders/{IN_PROCESS}/hook"

            def client(name: str) -> None:
                connection = http.client.HTTPConnection(host, int(port), timeout=20)
                for number in range(25):
                    connection.request("POST", path, f"{name}{number}", headers)
                    answer = connection.getresponse()
                    answer.read()
                    assert answer.status == 201
                connection.close()

            clients = [threading.Thread(target=client, args=(name,)) for name in "abcd"]
            for one in clients:
                one.start()
            for one in clients:
                one.join()
            patience = threading.Event()
            for _ in range(2000):
                if len(came) == 100:
                    break
                patience.wait(0.01)
            assert len(came) == len(set(came)) == 100
            for name in "abcd":
                own = [text for text in came if text.startswith(name)]
                assert own == [f"{name}{number}" for number in range(25)]
            assert cloud.problems == []

    on_watch(work)


def test_a_reset_while_deliveries_go_on_in_the_background() -> None:
    def work() -> None:
        with Cloud() as cloud:
            queue = cloud.queue()
            queue.destinations.call(IN_PROCESS, lambda request: None)
            queue.set_baseline()
            for _ in range(20):
                for _ in range(10):
                    queue.publish(IN_PROCESS + "/")
                queue.reset()
            assert queue.messages() == []
            last = queue.publish(IN_PROCESS + "/")
            patience = threading.Event()
            for _ in range(2000):
                if last.state == "delivered":
                    break
                patience.wait(0.01)
            assert last.state == "delivered"
            assert cloud.problems == []

    on_watch(work)
