"""The scenarios: their steps, and the ways to compare the replies. Each service has a text file.

A scenario begins with ``## title``. Each of its lines is a step: ``METHOD /path``, and the body as
JSON or as plain text; or, for the key-value service, a command. ``@name`` is a key that belongs to
the run and is deleted after the scenario. A line that begins with ``finally`` is a step of the
clean-up. ``~`` begins an option of a step::

    ~sorted               compare the replies in this way (see ``COMPARISONS``)
    ~loose                compare members with the names in the file's line ``loose`` only by type
    ~keep id=messageId    store a value of the reply for later steps
    ~settle               wait until a vector index has processed the write
    ~token wrong          send wrong credentials; ``none`` sends no credentials
    ~Name: value          send a header

Before the first scenario, ``name = step`` gives a step a name, with which lines can begin.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.assets import asset

COMPARISONS: Mapping[str, str] = {
    "exact": "value by value",
    "sorted": "in any order",
    "pairs": "as pairs in any order",
    "scan": "the page of a scan, in any order",
    "scan-pairs": "the page of a scan, as pairs in any order",
    "near": "numbers that differ by at most a minute, because time passes between the two requests",
    "idle": "idle times by type",
    "shape": "by type, because the value is random or depends on the clock",
    "rest": "value by value, and only over REST",
}
"""The ways to compare two replies. Each value describes the way in a report."""

_KEY = re.compile(r"@(\w+)")
_REQUEST = re.compile(r"([A-Z]+) (/\S*)(?: (.+))?")
_VECTOR = re.compile(r"<([\d., -]+)>(\+?)")


@dataclass(frozen=True)
class ScenarioStep:
    """A request, and the way to compare the replies to it.

    In ``path``, ``body``, ``json`` and ``headers``, ``{p}`` is replaced by the prefix of the run
    and ``{name}`` by a value that an earlier step stored.
    """

    method: str
    path: str
    json: Any = None
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    token: str | None = "right"
    """The credentials to send: ``"right"``, ``"wrong"``, or None for no credentials."""
    compare: str = "exact"
    """The way to compare the replies: a key of ``COMPARISONS``."""
    loose: frozenset[str] = frozenset()
    """Names of JSON members, at any depth of a reply, that are compared only by type."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Paths of values in the reply to store for later steps, by name (``"0.messageId"``)."""
    settle: bool = False
    """Whether to wait until a vector index has processed the write."""

    @property
    def subject(self) -> str:
        """The command, or the method and path, of the step."""
        if isinstance(self.json, list) and self.json and isinstance(self.json[0], str):
            return self.json[0].upper()
        return f"{self.method} {self.path.partition('?')[0]}"

    @property
    def is_command(self) -> bool:
        """Whether the step is a command of a key-value server."""
        return self.path == "/" and isinstance(self.json, list)

    def __str__(self) -> str:
        if isinstance(self.json, list) and self.is_command:
            return shlex.join(str(word) for word in self.json)
        sent = self.body if self.body is not None else ("" if self.json is None else self.json)
        settings = "".join(f" {name}: {value}" for name, value in self.headers.items())
        return " ".join(f"{self.method} {self.path}{settings} {sent}".split())


@dataclass(frozen=True)
class Scenario:
    """A sequence of steps that needs no data before it and leaves none behind."""

    service: str
    title: str
    steps: tuple[ScenarioStep, ...]
    cleanup: tuple[ScenarioStep, ...] = ()
    """Steps that delete the data of the other steps; their replies are not compared."""


def scenarios(service: str, *, dimension: int = 2, topic: str = "") -> list[Scenario]:
    """Return the scenarios of a service, for vectors of a dimension and a topic of the broker."""

    def vector(match: re.Match[str]) -> str:
        first = json.loads(f"[{match[1]}]")
        padding = [0.25] * (dimension - len(first))
        return json.dumps(first[:dimension] + padding + ([1] if match[2] else []))

    text = asset(__file__, f"{service}.txt").replace("{topic}", topic)
    return read_scenarios(service, _VECTOR.sub(vector, text))


def read_scenarios(service: str, text: str) -> list[Scenario]:
    """Return the scenarios of a text, whose notation the module describes."""
    head, *blocks = re.split("^## ", text, flags=re.MULTILINE)
    loose: frozenset[str] = frozenset()
    steps_by_name: dict[str, str] = {}
    for line in head.splitlines():
        name, _, definition = line.partition(" = ")
        if line.startswith("loose "):
            loose = frozenset(line.split()[1:])
        elif definition:
            steps_by_name[name] = definition
    scenarios_read = []
    for block in blocks:
        title, *lines = block.strip().splitlines()
        steps: list[ScenarioStep] = []
        cleanup: list[ScenarioStep] = []
        for line in lines:
            name, _, options = line.partition(" ")
            if name == "finally":
                cleanup.append(_step(options, loose))
            else:
                steps.append(_step(f"{steps_by_name.get(name, name)} {options}".rstrip(), loose))
        if keys := dict.fromkeys(_KEY.findall(block)):
            names = [f"{{p}}{key}" for key in keys]
            cleanup.append(ScenarioStep("POST", "/", json=["DEL", *names]))
        scenarios_read.append(Scenario(service, title, tuple(steps), tuple(cleanup)))
    return scenarios_read


def _step(line: str, loose: frozenset[str]) -> ScenarioStep:
    text, *options = line.split(" ~")
    fields: dict[str, Any] = {"headers": {}, "keep": {}}
    for option in options:
        word, _, value = option.partition(" ")
        if word.endswith(":"):
            fields["headers"][word.removesuffix(":")] = value
        elif word == "keep":
            name, _, path = value.partition("=")
            fields["keep"][name] = path
        elif word == "token":
            fields["token"] = None if value == "none" else value
        elif word == "loose":
            fields["loose"] = loose
        elif word == "settle":
            fields["settle"] = True
        else:
            fields["compare"] = word
    request = _REQUEST.fullmatch(_KEY.sub(r"{p}\1", text))
    if request is None:
        words = [_KEY.sub(r"{p}\1", word) for word in shlex.split(text)]
        return ScenarioStep("POST", "/", json=words, **fields)
    method, path, body = request.groups()
    if body is not None:
        fields |= {"json": json.loads(body)} if body[0] in "[{" else {"body": body}
    return ScenarioStep(method, path, **fields)
