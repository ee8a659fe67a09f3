"""Fixtures: a broker for each test, a client of its REST API, and consume calls in threads."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.cloud.fake import Context
from tests.harness import wait_until

START = "2026-01-01T00:00:00+00:00"
START_MS = 1_767_225_600_000
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CLIENTS: list[httpx.Client] = []
"""The brokers that the running test has opened."""
EARLIEST = {"Kafka-Auto-Offset-Reset": "earliest"}
MANUAL = {"Auto_Offset_Reset": "earliest", "Enable_Auto_Commit": "false"}
"""Options of ``Rest.consume()``: all records, and commits only by the client."""
Make = Callable[..., Broker]


class Rest:
    """A client of the REST API that returns the status and the JSON of each answer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.http = httpx.Client(
            base_url=broker.url, headers=broker.headers, timeout=30, verify=NO_TLS, trust_env=False
        )
        CLIENTS.append(self.http)

    def __call__(
        self, method: str, path: str, body: Any = None, *, headers: Any = None, status: int = 200
    ) -> Any:
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = self.http.request(
            method, path, headers=headers, **(content if body is not None else {})
        )
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    def produce(self, topic: str, *values: str, **fields: Any) -> list[dict[str, Any]]:
        return self("POST", f"/produce/{topic}", [{"value": value, **fields} for value in values])

    def consume(
        self,
        group: str,
        instance: str,
        *topics: str,
        timeout: int = 0,
        status: int = 200,
        **headers: str,
    ) -> Any:
        named = {f"Kafka-{name.replace('_', '-')}": value for name, value in headers.items()}
        body = {"topics": list(topics), "timeout": timeout}
        return self("POST", f"/consume/{group}/{instance}", body, headers=named, status=status)

    def values(self, group: str, instance: str, *topics: str, **options: Any) -> list[str]:
        return [record["value"] for record in self.consume(group, instance, *topics, **options)]

    def assignments(self, group: str) -> dict[str, dict[str, list[int]]]:
        for consumer_group in self("GET", "/consumers"):
            if consumer_group["name"] == group:
                return {
                    instance["name"]: {t["topic"]: t["partitions"] for t in instance["topics"]}
                    for instance in consumer_group["instances"]
                }
        return {}

    def committed(
        self, group: str, topic: str, *partitions: int, instance: str = "any"
    ) -> list[int]:
        body = [{"topic": topic, "partition": number} for number in partitions]
        offsets = self("POST", f"/committed/{group}/{instance}", body)
        assert [tp["partition"] for tp in offsets] == list(partitions)
        return [tp["offset"] for tp in offsets]

    def commit(
        self, group: str, instance: str, *offsets: tuple[str, int, int], status: int = 200
    ) -> Any:
        body = [{"topic": t, "partition": p, "offset": o} for t, p, o in offsets]
        return self("POST", f"/commit/{group}/{instance}", body, status=status)


class Parked:
    """A call in its own thread; ``result()`` returns its result."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error

    @property
    def waiting(self) -> bool:
        return self._thread.is_alive()

    def result(self, timeout: float = 20) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the call did not return"
        if self._error is not None:
            raise self._error
        return self._result


def until_parked(broker: Broker, calls: int = 1) -> None:
    """Wait until this number of calls waits inside the engine."""
    wait_until(lambda: len(broker._engine._waits.waiting) >= calls)


def park_consume(rest: Rest, *, join: bool = True) -> Parked:
    """Return a call that waits up to a minute of fake time for the values of instance ``i``.

    ``join`` makes a call before, so that the waiting call does not create the instance.
    """
    if join:
        rest.consume("g", "i", "orders")
    rest.broker._timekeeper.wait_cap = 60
    poll = Parked(lambda: rest.values("g", "i", "orders", timeout=60_000))
    until_parked(rest.broker)
    return poll


@contextmanager
def closing_brokers() -> Iterator[list[Broker]]:
    """Yield a list for brokers; close them at the end, and check that no bug was reported."""
    made: list[Broker] = []
    yield made
    while CLIENTS:
        CLIENTS.pop().close()
    for broker in made:
        broker.close()
        assert [
            violation.text for violation in broker._context.violations if violation.kind == "bug"
        ] == []


@pytest.fixture
def make_broker() -> Iterator[Make]:
    """Return a function that opens a broker, on a frozen clock by default."""

    with closing_brokers() as made:

        def make(clock: str = "frozen", seed: int = 7, **settings: Any) -> Broker:
            now = START if clock == "frozen" else None
            context = Context.alone(now=now, clock=clock, seed=seed)  # type: ignore[arg-type]
            settings.setdefault("topics", {"orders": 3})
            made.append(Broker(context, **settings))
            return made[-1]

        yield make


@pytest.fixture
def broker(make_broker: Make) -> Broker:
    """Return a broker with a topic ``orders`` of three partitions, on a frozen clock."""
    return make_broker()


@pytest.fixture
def rest(broker: Broker) -> Rest:
    """Return a REST client of ``broker``."""
    return Rest(broker)
