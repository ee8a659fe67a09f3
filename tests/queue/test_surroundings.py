"""Test deliveries to applications in every supported place, with every supported surrounding.

The clock runs or is frozen. The application runs in a server thread, in the running event loop, in
process, or in another process. During the delivery it calls a fake, long-polls while the clock is
being advanced, uses ``responses``, or runs under freezegun or time-machine. Each delivery is
signed, and the official receiver accepts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import freezegun
import pytest
import responses
import time_machine

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.journal import Results
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.model import Attempt

from . import matrix_app
from .scene import attempts_among

CLOCKS = ["running", "frozen"]
PLACES = ["thread", "asyncio", "in-process", "other process"]
SURROUNDINGS = ["callback", "long poll", "responses", "freezegun", "time-machine"]
APP = "https://app.example.com"
UPSTREAM = "https://upstream.example.com/"

pytestmark = pytest.mark.timeout(60)


def watched(test: Callable[[], None], seconds: float = 25.0) -> None:
    """Run a test in a separate thread, so that a hang fails it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            test()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # ``join()`` waits in C, so frozen time does not affect it.
    thread.join(seconds)
    assert not thread.is_alive(), f"the test hung for {seconds:g} s"
    if errors:
        raise errors[0]


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most twenty seconds."""
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("the condition never held")


@pytest.fixture(scope="module")
def other_process() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, str(Path(matrix_app.__file__))], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def server_thread() -> Iterator[str]:
    with matrix_app.make_server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@dataclass
class Cell:
    """The clock of a cloud, and the place and the URL of the application."""

    clock: Any
    place: str
    url: str
    queue_settings: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def cloud(self, delivery: Any = "driven") -> Iterator[tuple[Cloud, Any]]:
        with Cloud(clock=self.clock, seed=1, delivery=delivery) as cloud:
            cloud._timekeeper.wait_cap = 0.2
            queue: Any = cloud.queue(**self.queue_settings)
            if self.place == "in-process":

                def in_process(request: DeliveredRequest) -> int:
                    signature = request.headers.get("Upstash-Signature")
                    return matrix_app.handle(signature, request.body, request.url)

                queue.destinations.call(APP, in_process)
            elif self.place == "asyncio":
                queue.destinations.asgi(APP, matrix_app.asgi)
            yield cloud, queue
            assert cloud.violations() == []

    def drive(self, queue: Any, name: str, *args: Any) -> Results[Attempt]:
        owner = queue.clock if name == "advance" else queue
        count = len(queue.attempts())
        if self.place != "asyncio":
            getattr(owner, name)(*args)
        else:

            async def main() -> None:
                await getattr(owner.aio, name)(*args)

            asyncio.run(main())
        return queue.attempts()[count:]

    def publish(self, queue: Any, delay: str = "1h", **asked: Any) -> Any:
        keys = [queue.current_signing_key, queue.next_signing_key]
        asked |= {"keys": keys}
        return queue.publish(self.url + "/first", json=asked, retries=0, delay=delay)

    def publish_again(self, queue: Any) -> dict[str, Any]:
        """A request with which the application publishes another message, ten seconds later."""
        return {
            "method": "POST",
            "url": f"{queue.url}/v2/publish/{self.url}/second",
            "headers": {**queue.headers, "Upstash-Delay": "10s"},
            "json": {"keys": [queue.current_signing_key, queue.next_signing_key]},
        }


@pytest.fixture(params=CLOCKS)
def clock(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PLACES)
def cell(request: pytest.FixtureRequest, clock: str) -> Cell:
    place = request.param
    if place == "thread":
        return Cell(clock, place, request.getfixturevalue("server_thread"))
    if place == "other process":
        return Cell(clock, place, request.getfixturevalue("other_process"))
    return Cell(clock, place, APP)


def check(attempts: Results[Attempt], count: int) -> None:
    answers = [(attempt.status, attempt.exception, attempt.body) for attempt in attempts]
    assert [attempt.status for attempt in attempts] == [200] * count, answers
    assert attempts[0].waited.total_seconds() == pytest.approx(3600, abs=0.001)


@contextlib.contextmanager
def frozen(tool: str) -> Iterator[None]:
    if tool == "freezegun":
        with freezegun.freeze_time("2031-05-05T05:05:05Z"):
            yield
    else:
        with time_machine.travel("2001-02-03T04:05:06Z", tick=False):
            yield


def callback(cell: Cell) -> None:
    """The application publishes to the queue, and the same advance delivers that message."""
    with cell.cloud() as (cloud, queue):
        message = cell.publish(queue, requests=[cell.publish_again(queue)])
        attempts = cell.drive(queue, "advance", "2h")
        check(attempts, 2)
        # The clock moves as far as requested, however long the application takes.
        assert (cloud.clock.now() - message.created).total_seconds() >= 7200
        assert [attempt.url for attempt in attempts] == [cell.url + "/first", cell.url + "/second"]
        assert (attempts[1].at - attempts[0].at).total_seconds() == pytest.approx(10, abs=1)


def long_poll(cell: Cell) -> None:
    """The application polls the broker of the same cloud while the clock is being advanced."""
    with cell.cloud() as (cloud, queue):
        broker: Any = cloud.broker()
        broker.create_topic("events", 1)
        poll = {
            "method": "POST",
            "url": f"{broker.url}/fetch",
            "headers": broker.headers,
            "json": {"topic": "events", "partition": 0, "offset": 0, "timeout": 60_000},
        }
        cell.publish(queue, requests=[poll])
        check(cell.drive(queue, "advance", "2h"), 1)


def with_responses(cell: Cell) -> None:
    """A mock of the application's upstream does not receive deliveries."""
    with cell.cloud() as (_, queue), responses.RequestsMock() as mock:
        here = cell.place != "other process"
        if here:
            mock.get(UPSTREAM)
        cell.publish(queue, upstream=UPSTREAM if here else None)
        check(cell.drive(queue, "run_until_idle"), 1)
        assert len(mock.calls) == int(here)


def frozen_process(cell: Cell, tool: str) -> None:
    """The receiver checks the token against its own clock."""
    if cell.place == "other process":
        cell.queue_settings["signature_clock"] = "real"
    with frozen(tool), cell.cloud() as (cloud, queue):
        before = cloud.clock.now()
        cell.publish(queue)
        check(cell.drive(queue, "advance", "24h"), 1)
        assert (cloud.clock.now() - before).total_seconds() == 86_400


CELLS: dict[str, Callable[[Cell], None]] = {
    "callback": callback,
    "long poll": long_poll,
    "responses": with_responses,
    "freezegun": lambda cell: frozen_process(cell, "freezegun"),
    "time-machine": lambda cell: frozen_process(cell, "time-machine"),
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_cell(cell: Cell, surroundings: str) -> None:
    watched(lambda: CELLS[surroundings](cell))


def test_deliveries_in_the_background(cell: Cell) -> None:
    def run() -> None:
        with cell.cloud("background") as (_, queue):
            now = cell.publish(queue, delay="0s", requests=[cell.publish_again(queue)])
            later = cell.publish(queue)
            until(lambda: now.state == "delivered")
            assert [message.state for message in queue.messages()] == [
                "delivered",
                "pending",
                "pending",
            ]
            queue.clock.advance("1h")
            assert {message.state for message in queue.messages()} == {"delivered"}
            assert later.attempts.only().status == 200

    watched(run)


@pytest.mark.parametrize("tool", ["freezegun", "time-machine"])
def test_a_receiver_in_another_process_does_not_see_frozen_time(
    clock: str, other_process: str, tool: str
) -> None:
    def run() -> None:
        cell = Cell(clock, "other process", other_process)
        with frozen(tool), cell.cloud() as (_, queue):
            cell.publish(queue)
            (attempt,) = cell.drive(queue, "run_until_idle")
            assert attempt.status == 500
            assert b"SignatureError" in attempt.body

    watched(run)


@pytest.mark.parametrize("place", ["in-process", "asyncio"])
def test_advancing_inside_a_handler_is_a_contract_error(clock: str, place: str) -> None:
    def run() -> None:
        with Cloud(clock=clock, delivery="driven") as cloud:  # type: ignore[arg-type]
            queue: Any = cloud.queue()
            queue.destinations.call(APP, lambda request: queue.clock.advance("1h"))
            queue.publish(APP)
            cell = Cell(clock, place, APP)
            with pytest.raises(
                ContractError, match="cannot be advanced again from inside a handler"
            ):
                cell.drive(queue, "advance", "1m")

    watched(run)


def test_a_long_poll_elsewhere_ends_when_the_clock_passes_its_deadline(clock: str) -> None:
    def run() -> None:
        with Cloud(clock=clock, delivery="driven") as cloud:  # type: ignore[arg-type]
            cloud._timekeeper.wait_cap = 4
            broker: Any = cloud.broker()
            broker.create_topic("events", 1)
            import httpx

            answers: list[Any] = []

            def poll() -> None:
                answer = httpx.post(
                    f"{broker.url}/fetch",
                    headers=broker.headers,
                    json={"topic": "events", "partition": 0, "offset": 0, "timeout": 60_000},
                    timeout=20,
                )
                answers.append(answer.json())

            thread = threading.Thread(target=poll)
            thread.start()
            while not broker.journal.calls(route="fetch"):
                thread.join(0.005)
            queue: Any = cloud.queue()
            queue.clock.advance("61s")
            thread.join(3)
            assert answers == [[]]

    watched(run)


def test_a_client_of_the_fake_is_served_while_time_is_moved() -> None:
    def run() -> None:
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

            queue.destinations.call(APP, handler)
            queue.publish(APP + "/")
            assert attempts_among(queue.clock.advance("1s")).only().status == 200
            assert answered == [200]

    watched(run)


def test_a_reset_while_deliveries_go_on_in_the_background() -> None:
    def run() -> None:
        with Cloud() as cloud:
            queue = cloud.queue()
            queue.destinations.call(APP, lambda request: None)
            queue.set_baseline()
            for _ in range(20):
                for _ in range(10):
                    queue.publish(APP + "/")
                queue.reset()
            assert queue.messages() == []
            last = queue.publish(APP + "/")
            until(lambda: last.state == "delivered")
            assert last.state == "delivered"
            assert cloud.violations() == []

    watched(run)
