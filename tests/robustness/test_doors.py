"""Send hostile HTTP to every port: each connection must end, none may get a 500, and all ports must
stay open.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.standalone.addresses import Hosts
from pytest_fakecloud.standalone.api import ControlApp
from tests.budget import cases
from tests.http.fuzzing import attempt_port

DOORS = (
    "kv_server",
    "vector_index",
    "broker",
    "queue",
    "callback_capture",
    "destination",
    "control",
)


PATHS = {
    "kv_server": "/ /set/k/v /get/k /pipeline /multi-exec /subscribe/c",
    "vector_index": "/upsert /query /fetch/ns /range /delete /info /resumable-query",
    "broker": "/produce/t /produce/t/v /fetch /consume/g/i/t /commit/g/i /topics /webhook",
    "queue": "/v2/publish/http://x /v2/batch /v2/queues /v2/dlq /v2/logs /v2/schedules/http://x",
    "callback_capture": "/callback /failure /x",
    "destination": "/x",
    "control": "/ /__control__/state /__control__/clock /__control__/call /__control__/violations",
}
"""The paths of requests that pass authentication."""


@dataclass
class House:
    """A cloud with all fakes, their addresses and credentials."""

    cloud: Cloud
    addresses: dict[str, tuple[str, int]]
    keys: dict[str, str]

    def change(self, door: str, data: bytes, luck: random.Random) -> bytes:
        """Add credentials and a valid path to some of the requests."""
        if luck.random() < 0.3:
            return data
        path = luck.choice(PATHS[door].split()).encode()
        login = f"Host: 127.0.0.1\r\nAuthorization: {self.keys[door]}\r\n".encode()
        return data.replace(b"Host: h\r\n", login).replace(b" /a ", b" " + path + b" ")

    def check(self) -> None:
        """Check that every service still works and that no bug was reported."""
        assert not [violation for violation in self.cloud.violations() if violation.kind == "bug"]
        kv = self.cloud.kv_server(name="after")
        assert kv.execute("SET", "a", "1") == "OK"
        for name, (host, port) in self.addresses.items():
            answer = requests.get(f"http://{host}:{port}/nothing-here", timeout=10)
            assert answer.status_code < 500, name


@contextmanager
def house() -> Iterator[House]:
    with Cloud(seed=1, delivery="driven") as cloud:
        fakes: dict[str, Any] = {
            name: getattr(cloud, name)(**({"dimension": 2} if name == "vector_index" else {}))
            for name in DOORS[:-1]
        }
        # A request without a handler is a 500 of pytest-httpserver itself, so give it a handler.
        for name in ("callback_capture", "destination"):
            fakes[name].server.expect_request(re.compile(".*")).respond_with_data("fine")
        control = cloud._context.mount(ControlApp(cloud, "token", hosts=Hosts("127.0.0.1", [])))
        addresses = {name: fake._mount.address for name, fake in fakes.items()}
        keys = {name: fake.headers.get("Authorization", "x") for name, fake in fakes.items()}
        yield House(
            cloud, {**addresses, "control": control.address}, {**keys, "control": "Bearer token"}
        )
        control.close()


def attack(seed: int, rounds: int) -> dict[str, Counter[str]]:
    """Open this number of connections at each port; return how they ended."""
    with house() as doors:
        ended = {}
        for name, address in doors.addresses.items():
            luck = random.Random(f"{seed} {name}")
            change = partial(doors.change, name, luck=luck)
            ended[name] = Counter(attempt_port(address, luck, change) for _ in range(rounds))
        doors.check()
    return ended


@pytest.mark.slow
def test_hostile_requests_at_every_door() -> None:
    """Send more than 1,500 requests: on average, a connection has two and a half."""
    ended = attack(1, rounds := cases(100))
    assert set(ended) == set(DOORS)
    for name, statuses in ended.items():
        assert statuses["400"] > rounds / 7, (name, statuses)
        assert statuses["401"] < rounds / 1.6, (name, statuses)
    assert len(set().union(*ended.values())) > 4, ended


@pytest.mark.long
def test_hostile_requests_at_every_door_for_long() -> None:
    attack(random.randrange(2**32), 12_000)
