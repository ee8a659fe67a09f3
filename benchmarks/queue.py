"""The cost of the queue: a day of retries, thousands of deliveries, many waiting messages, slow
deliveries.

Run ``python -m benchmarks.queue``. Exits with 1 if a limit is missed.
"""

from __future__ import annotations

import gc
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter, process_time, time
from typing import Any

import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context, Fake
from pytest_fakecloud.http.app import App
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.http.routing import Route
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.signatures import explain

from .timing import compare, limit, line

START = "2026-01-01T00:00:00Z"
UNRELATED = "https://other.example.com/hook"
STUBBED = "https://app.example.com/hook"
MESSAGES = 1_000
PENDING = 100_000
ENDPOINTS = 20_000


class Hook(App):
    """A loopback application that answers every POST in the same way."""

    service = "hook"
    status = 200
    queue: Queue | None = None

    @classmethod
    def routes(cls) -> list[Route]:
        return [Route("POST", "/{rest*}", "hook", cls.hook)]

    def hook(self, request: Request) -> object:
        if self.queue is not None:
            why = explain(
                request.headers.get("Upstash-Signature"),
                body=request.body,
                keys=self.queue._engine.keys,
                at=time(),
            )
            assert why is None, why
        return Answer(b"ok", self.status, (), "text/plain")


class NoEngine:
    def snapshot(self) -> None:
        return None

    def restore(self, snapshot: None) -> None:
        return None


class HookServer(Fake):
    """A fake that serves the loopback application."""

    service = "hook"
    fixture = "hook"

    def _make_app(self) -> App:
        self._engine = NoEngine()
        return Hook(self._instruments)


def ladder() -> bool:
    """Measure 48 hours, six attempts and a failure callback; the receiver verifies every signature."""
    context = Context.alone(now=START)
    server = HookServer(context)
    hook = server._app
    assert isinstance(hook, Hook)
    hook.status = 500
    queue = Queue(context)
    verified: list[str | None] = []

    def receive(request: DeliveredRequest) -> int:
        verified.append(
            explain(
                request.headers.get("Upstash-Signature"),
                body=request.body,
                keys=queue._engine.keys,
                at=time(),
                url=request.url,
            )
        )
        return 500

    def in_process() -> None:
        queue.destinations.call(STUBBED, receive)
        queue.publish(STUBBED, json={"n": 1}, retries=5, failure_callback=STUBBED + "/failure")
        queue.clock.advance("48h")

    def over_loopback() -> None:
        url = server.url + "/hook"
        hook.queue = queue
        queue.publish(url, json={"n": 1}, retries=5, failure_callback=server.url + "/failure")
        queue.clock.advance("48h")
        hook.queue = None

    def seven_posts() -> None:
        for _ in range(7):
            requests.post(server.url + "/hook", json={"n": 1}, timeout=5)

    table = compare(
        {
            "seven requests.post": seven_posts,
            "ladder over loopback, verified": over_loopback,
            "ladder in process, verified": in_process,
        },
        rounds=9,
    )
    print(table)
    assert verified
    assert set(verified) == {None}
    good = limit(
        "ladder over loopback, verified, ms",
        table["ladder over loopback, verified"].best / 1000,
        25,
    )
    good &= limit(
        "ladder in process, verified, ms", table["ladder in process, verified"].best / 1000, 25
    )
    line(
        "ladder over loopback against seven requests.post",
        table.ratio("ladder over loopback, verified", "seven requests.post"),
    )
    queue.close()
    server.close()
    return good


def four_thousand_attempts() -> bool:
    """Compare 1,000 messages with four attempts each with as many plain POST requests."""
    context = Context.alone(now=START)
    server = HookServer(context)
    server._app.status = 500  # type: ignore[attr-defined]
    ratios: list[float] = []
    quicker: list[float] = []
    for _ in range(3):
        posts = _timed(
            lambda: [
                requests.post(server.url + "/hook", b"x", timeout=5) for _ in range(4 * MESSAGES)
            ]
        )
        loopback = _timed(lambda: _thousand(Queue(context), server.url + "/hook"))
        queue = Queue(context)
        queue.destinations.respond(STUBBED, 500)
        in_process = _timed(lambda queue=queue: _thousand(queue, STUBBED))  # type: ignore[misc]
        print(
            f"{4 * MESSAGES:,} attempts: requests.post {posts:.2f} s, loopback {loopback:.2f} s,"
            f" in process {in_process:.2f} s"
        )
        ratios.append(loopback / posts)
        quicker.append(posts / in_process)
    server.close()
    good = limit(f"{MESSAGES:,} x 4 over loopback against requests.post", median(ratios), 1.5)
    good &= limit(
        f"requests.post against {MESSAGES:,} x 4 in process", median(quicker), at_least=5.0
    )
    return good


def _thousand(queue: Queue, url: str) -> None:
    for _ in range(MESSAGES):
        queue.publish(url, body=b"x", retries=3)
    attempts = queue.run_until_idle()
    assert len(attempts) == 4 * MESSAGES
    queue.close()


def _publish_thousand(queue: Queue) -> None:
    for _ in range(1000):
        queue.publish(STUBBED, body=b"x", delay="1m")


def many_pending() -> bool:
    """Measure publishing and advancing, per message, with 1,000 and with 100,000 waiting messages."""
    costs: dict[str, dict[int, list[float]]] = {"publish": {}, "advance": {}}
    queues: dict[int, Queue] = {}
    for size in (1_000, PENDING):
        queue = queues[size] = Queue(Context.alone(now=START))
        queue.destinations.accept()
        for _ in range(size):
            queue.publish(STUBBED, body=b"x", delay="30d")
        gc.collect()
    for _ in range(7):
        for size, queue in queues.items():
            publishing = _timed(partial(_publish_thousand, queue))
            advancing = _timed(lambda q=queue: q.clock.advance("1m"))  # type: ignore[misc]
            costs["publish"].setdefault(size, []).append(publishing)
            costs["advance"].setdefault(size, []).append(advancing)
    good = True
    for what, by_size in costs.items():
        small, large = by_size[1_000], by_size[PENDING]
        ratio = median(b / a for a, b in zip(small, large, strict=True))
        print(
            f"{what} per message: {min(small) * 1000:.1f} us with 1,000 pending,"
            f" {min(large) * 1000:.1f} us with {PENDING:,}"
        )
        good &= limit(f"{what} with {PENDING:,} pending against 1,000", ratio, 2.0)
    whole = _timed(lambda: queues[PENDING].clock.advance("31d"))
    print(f"delivering the {PENDING:,}: {whole:.2f} s, {whole / PENDING * 1e6:.1f} us each")
    for queue in queues.values():
        queue.close()
    return good


def beside_slow_ones() -> bool:
    """Measure a delivery in the background beside ten deliveries of a second, and beside two that
    hang.
    """
    good = True
    with Cloud() as cloud:
        queue = cloud.queue(attempt_cap=5.0)
        came = threading.Event()
        go_on = threading.Event()
        queue.destinations.call(STUBBED, lambda request: go_on.wait(1.0) and None)
        queue.destinations.call(UNRELATED, lambda request: came.set())

        def unrelated() -> float:
            came.clear()
            start = perf_counter()
            queue.publish(UNRELATED)
            assert came.wait(30)
            return perf_counter() - start

        alone = median(unrelated() for _ in range(50))
        print(f"an unrelated delivery on its own: {alone * 1000:.2f} ms")
        for _ in range(10):
            queue.publish(STUBBED, retries=0)
        good &= limit("an unrelated delivery beside ten of 1 s, s", unrelated(), 1.5)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for _ in range(2):
                queue.publish(f"http://127.0.0.1:{silent.getsockname()[1]}/", retries=0)
            good &= limit("an unrelated delivery beside two that hang, s", unrelated(), 1.5)
            for _ in range(1000):
                queue.publish(UNRELATED)
            started = perf_counter()
            while len(queue._engine.data.pending) > 12:
                go_on.wait(0.001)
            print(f"1,000 deliveries side by side: {perf_counter() - started:.2f} s")
            go_on.set()
            queue.close()
    return good


def large_group() -> bool:
    """Measure adding endpoints to a URL group, publishing to it and removing them, per endpoint."""
    costs: dict[str, dict[int, float]] = {"add": {}, "publish": {}, "remove": {}}
    for size in (1_000, ENDPOINTS):
        queue = Queue(Context.alone(now=START))
        groups = queue._engine.url_groups
        endpoints = [(f"https://e{number}.example.com/", None) for number in range(size)]
        items = [{"url": url} for url, _ in endpoints]
        gc.collect()
        costs["add"][size] = _timed(lambda g=groups, w=endpoints: g.add_all("g", w))  # type: ignore[misc]
        costs["publish"][size] = _timed(lambda q=queue: q.publish("g"))  # type: ignore[misc]
        costs["remove"][size] = _timed(
            lambda g=groups, i=items: g.remove_endpoints(g.get("g"), i)  # type: ignore[misc]
        )
        queue.close()
    good = True
    for what, by_size in costs.items():
        small, large = by_size[1_000] / 1_000, by_size[ENDPOINTS] / ENDPOINTS
        print(f"{what}: {ENDPOINTS:,} endpoints in {by_size[ENDPOINTS]:.2f} s")
        good &= limit(f"{what} per endpoint of {ENDPOINTS:,} against 1,000", large / small, 3.0)
    return good


def _timed(work: Callable[[], Any]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def main() -> int:
    started = process_time()
    results = [
        ladder(),
        four_thousand_attempts(),
        many_pending(),
        large_group(),
        beside_slow_ones(),
    ]
    print(f"{process_time() - started:.1f} s of processor time")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
