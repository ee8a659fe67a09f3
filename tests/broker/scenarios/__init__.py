"""HTTP requests to a broker with their responses, as text, in the notation of `tests/notations.py`.

A broker has the topic `orders` with three partitions unless its settings say otherwise. A request
without a method is a POST, and `NOW` is the time in Unix milliseconds. `records orders => ab/c` are the
values of a topic's partitions in order. After each error, the records and the groups are unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.cloud.fake import Context

from ...notations import Fetched, RestPlayer
from ..conftest import START, START_MS

FOLDER = Path(__file__).parent


class BrokerPlayer(RestPlayer):
    """Plays the scenarios of a broker."""

    unchanged: object = None
    """The state after the last error, until a request succeeds."""

    def line(self, text: str, below: list[str]) -> None:
        if text.startswith("records "):
            topic, _, wanted = text[8:].partition(" => ")
            assert self.records(topic) == wanted, self.records(topic)
        else:
            super().line(f"POST {text}" if text[0] == "/" else text, below)

    def filled(self, text: str) -> str:
        return super().filled(text.replace("NOW", str(START_MS)))

    def records(self, topic: str) -> str:
        count = self.fake.topic(topic).partitions
        parts = [self.fake.records(topic, partition=number) for number in range(count)]
        return "/".join(" ".join(record.value for record in part) or "-" for part in parts)

    def state(self) -> object:
        topics = [(topic.name, topic.end_offsets) for topic in self.fake.topics()]
        return topics, self.fake._engine.groups.names()

    def step(self, line: str, reply: str) -> None:
        is_error = reply[:1] == "4"
        before = (self.unchanged or self.state()) if is_error else None
        super().step(line, reply)
        self.unchanged = self.state() if is_error else None
        assert self.unchanged == before

    def check(self, answer: Fetched, reply: str) -> None:
        super().check(answer, reply)
        if answer.status != 200:
            error = answer.json()
            assert set(error) == {"error", "status"}
            assert error["status"] == answer.status


def settings_of(written: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a scenario, with the pairs that JSON cannot have."""
    errors = written.get("errors", {})
    pairs = {
        kind: tuple(error) if isinstance(error, list) else error for kind, error in errors.items()
    }
    return {"topics": {"orders": 3}, **written, **({"errors": pairs} if pairs else {})}


def play(settings: dict[str, Any], lines: list[str]) -> None:
    """Send the requests of a scenario, and check the responses."""
    with Broker(Context.alone(now=START, seed=7), **settings_of(settings)) as broker:
        BrokerPlayer(broker).play(lines)
