"""Findings about consumer groups, and similar cases without a finding."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud

from ...notations import Player, scenarios
from .cases import SCENES, judge

SCENARIOS = scenarios(SCENES / "records.txt")
MANUAL = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}


class Shop(Player):
    """Plays scenarios of a broker with the topics ``t`` (one partition) and ``wide`` (two).

    - ``+ t x3`` produces three records, ``+ wide/1 key`` one record with a partition and a key.
    - ``consume GROUP/INSTANCE TOPIC`` sends the headers ``MANUAL`` unless it names others:
      ``earliest`` or ``latest``, ``manual``, or ``NAME=VALUE``.
    - ``commit GROUP/INSTANCE t-0=1`` and ``leave GROUP/INSTANCE`` are an instance's requests;
      ``stored GROUP t-0=0`` is a commit by the test.
    - ``batch t a b`` is a single produce request; ``partial 1`` and ``fault 503`` make such a
      request fail. ``truncate`` truncates the next answer.
    - ``retention t 1h``, ``delete t 2`` (the records before that offset), and ``drop t`` (the
      topic).
    """

    def __init__(self, cloud: Cloud) -> None:
        super().__init__()
        self.cloud = cloud
        self.broker = cloud.broker(topics={"t": 1, "wide": 2})

    def ask(self, path: str, body: Any = None, **headers: str) -> Any:
        sent = {f"Kafka-{name.replace('_', '-')}": value for name, value in headers.items()}
        with suppress(httpx.TransportError):
            return self.broker.client().post(path, json=body, headers=sent or MANUAL).json()

    @property
    def fake(self) -> Any:
        return self.cloud

    def run(self, text: str) -> None:
        """Play the lines of a scenario, separated by ``|``."""
        self.play(text.split(" | "))

    def step(self, line: str, reply: str) -> None:
        kind, *words = line.split()
        positions = [
            {"topic": topic, "partition": int(partition), "offset": int(offset)}
            for topic, partition, offset in re.findall(r"(\w+)-(\d)=(\d)", line)
        ]
        if kind == "+":
            topic, _, partition = words.pop(0).partition("/")
            count = int(words.pop()[1:]) if words and re.fullmatch(r"x\d", words[-1]) else 1
            more: dict[str, Any] = {"partition": int(partition)} if partition else {}
            for number in range(count):
                self.broker.produce(topic, f"v{number}", key=(words or [None])[0], **more)
        elif kind == "consume":
            short = {"earliest": "auto_offset_reset=earliest", "manual": "enable_auto_commit=false",
                     "latest": "auto_offset_reset=latest"}  # fmt: skip
            headers = dict(short.get(word, word).split("=") for word in words[2:])
            self.ask(f"consume/{words[0]}", {"topic": words[1]}, **headers)
        elif kind == "commit":
            self.ask(f"commit/{words[0]}", positions or None)
        elif kind == "leave":
            group, _, instance = words[0].partition("/")
            self.broker.group(group).leave(instance)
        elif kind == "stored":
            self.broker.commit(words[0], *positions[0].values())
        elif kind == "batch":
            self.ask(f"produce/{words[0]}", [{"value": word} for word in words[1:]])
        elif kind == "partial":
            self.broker.faults.partial_produce(int(words[0]))
        elif kind == "fault":
            self.broker.faults.respond(int(words[0]), times=1)
        elif kind == "truncate":
            self.broker.faults.truncate(times=1)
        elif kind == "retention":
            topic, *arguments = words
            self.broker.topic(topic).set_retention(*arguments)
        elif kind == "delete":
            self.broker.topic(words[0]).delete_records(before=int(words[1]))
        else:
            assert kind == "drop", line
            self.broker.topic(words[0]).delete()


@pytest.fixture
def shop(cloud: Cloud) -> Shop:
    return Shop(cloud)


@pytest.mark.parametrize("name", SCENARIOS)
def test_findings_about_records(shop: Shop, name: str) -> None:
    shop.play(SCENARIOS[name][1])
    judge("records", name, shop.cloud)
