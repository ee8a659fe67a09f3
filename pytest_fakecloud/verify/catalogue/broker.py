"""Scenarios of the broker, which use an existing topic of the user and a consumer group of the run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from . import Scenario, Step, scenario

_scenario = partial(scenario, "broker")
_WHERE = frozenset({"offset", "partition", "timestamp", "timestampType"})


def scenarios(topic: str) -> Iterator[Scenario]:
    """Yield the scenarios. They write a few records, which the topic keeps until they expire."""
    away = (Step("POST", "/delete-consumer/{p}group/one"),)
    yield _scenario(
        "produce",
        Step("GET", f"/produce/{topic}/{{p}}in-path", loose=_WHERE),
        Step("POST", f"/produce/{topic}", json={"value": "{p}one", "key": "k"}, loose=_WHERE),
        Step(
            "POST", f"/produce/{topic}", json=[{"value": "{p}a"}, {"value": "{p}b"}], loose=_WHERE
        ),
        Step("POST", "/produce", json={"topic": topic, "value": "{p}c"}, loose=_WHERE),
        Step("POST", f"/produce/{topic}", json={}),
        Step("POST", f"/produce/{topic}", json=[]),
        Step("POST", f"/produce/{topic}", body="not json"),
        Step("POST", f"/produce/{topic}", json={"value": "x", "partition": 100000}),
        Step("POST", "/produce/{p}none", json={"value": "x"}),
    )
    yield _scenario(
        "consumer groups",
        Step("GET", f"/consume/{{p}}group/one/{topic}?timeout=1000"),
        Step("POST", "/commit/{p}group/one"),
        Step("POST", "/committed/{p}group/one", json={"topic": topic, "partition": 0}),
        Step("POST", "/commit/{p}group/none"),
        Step("POST", "/delete-consumer/{p}group/one"),
        Step("POST", "/delete-consumer/{p}group/one"),
        cleanup=away,
    )
    yield _scenario(
        "fetch and offsets",
        Step("POST", "/fetch", json={"topic": topic, "partition": 0, "offset": -1}),
        Step("POST", "/fetch", json={"topic": "{p}none", "partition": 0, "offset": 0}),
        Step("POST", "/fetch", json={}),
        Step("POST", "/offsets/earliest", json={"topic": topic, "partition": 0}, loose=_WHERE),
        Step("POST", "/offsets/nonsense", json={"topic": topic, "partition": 0}),
    )
    yield _scenario(
        "credentials and unknown paths",
        Step("GET", "/topics", token=None),
        Step("GET", "/topics", token="wrong"),
        Step("GET", "/nothing-here"),
    )
