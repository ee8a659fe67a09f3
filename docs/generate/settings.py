"""The page of settings: of the marker, of each fake, and the limits of plans."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from pytest_fakecloud.broker.settings import Behaviour, BrokerLimits, BrokerSettings
from pytest_fakecloud.kv.settings import KVSettings
from pytest_fakecloud.queue.capture.settings import CallbackCaptureSettings, DestinationSettings
from pytest_fakecloud.queue.settings import PROFILES, PlanLimits, QueueSettings
from pytest_fakecloud.services import SERVICES, handle_class
from pytest_fakecloud.session import GENERAL_SETTINGS
from pytest_fakecloud.settings import PlaceSettings
from pytest_fakecloud.vector.embedding import MODELS
from pytest_fakecloud.vector.settings import VectorLimits, VectorSettings

from .markdown import HEAD, attribute_docs, table

__all__ = ["GENERAL", "SETTINGS", "page"]

GENERAL: Mapping[str, tuple[str, str, str]] = {
    "now": ("an instant", "the present", "Where the clock begins."),
    "clock": ('`"running"` or `"frozen"`', "ini `fakecloud_clock`", "Whether time passes by itself."),
    "seed": ("a number or text", "the test's node id", "What all ids and randomness come from."),
    "process_time": (
        'bool, or `"autojump"`', "`False`",
        "Whether `time.time()` and `datetime.now()` follow the clock, which then stands until it is"
        " moved; `\"autojump\"` lets sleeps of the process move it (extra `time`).",
    ),
    "strict": ("bool, or names of problems", "ini `fakecloud_strict`", "What fails a passing test."),
    "env": (
        "bool", "ini `fakecloud_env`", "Whether the variables that official clients read are set."
    ),
    "transport": (
        '`"socket"` or `"inprocess"`', "ini `fakecloud_transport`",
        "Whether requests, httpx and urllib3 of this process skip the socket.",
    ),
    "tls": ("bool", "`False`", "Whether the fakes speak HTTPS (extra `tls`)."),
}  # fmt: skip
"""The settings of a test's whole cloud: type, default, meaning."""
SETTINGS: Mapping[str, Any] = {
    "kv_server": KVSettings,
    "vector_index": VectorSettings,
    "broker": BrokerSettings,
    "queue": QueueSettings,
    "callback_capture": CallbackCaptureSettings,
    "destination": DestinationSettings,
}
"""The TypedDict of each fixture's settings."""
_HEAD = f"""\
{HEAD}
# Settings

Everything a fake can be told. The same names are taken by the marker, by the fixture
`fakecloud_settings`, and by the methods of `fakecloud` and `Cloud` that start a fake:

```python
import pytest


@pytest.mark.fakecloud(now="2026-01-01T00:00:00Z", kv_server={{"daily_limit": 10}})
def test_with_the_marker(kv_server):
    assert kv_server.client().incr("n") == 1


def test_with_a_method(fakecloud):
    assert fakecloud.kv_server(daily_limit=10).client().incr("n") == 1
```

A name that is no setting, and a value that can be none, is an error that says what there is. A
marker on a test goes before one on its class, its module, then `fakecloud_settings`, command line and
ini file; settings of a fake are merged key by key.

A duration is seconds, a text such as `"90s"`, `"1h30m"` or `"7d"`, or a `timedelta`. An instant is an
ISO text with an offset, a `datetime` with a time zone, or Unix seconds.

## Of the whole test

"""


def page() -> str:
    """The whole page in Markdown."""
    parts = [_HEAD, table(("Setting", "Type", "Default", "What it is"), _general())]
    for fixture, kind in SETTINGS.items():
        rows = list(_rows(fixture))
        own = table(("Setting", "Type", "Default", "What it is"), rows)
        parts += [f"\n## `{fixture}`\n\n", own if rows else "It has none of its own.\n"]
        parts += _limits_of(kind)
    places = {**attribute_docs(DestinationSettings), **attribute_docs(PlaceSettings)}
    parts += [
        "\n## Of every fake\n\n",
        table(("Setting", "What it is"), ((f"`{name}`", text) for name, text in places.items())),
    ]
    return "".join(parts)


def _general() -> Iterator[tuple[str, ...]]:
    for name in GENERAL_SETTINGS:
        yield (f"`{name}`", *GENERAL[name])


def _rows(fixture: str) -> Iterator[tuple[str, str, str, str]]:
    kind = SETTINGS[fixture]
    meanings = attribute_docs(kind)
    if kind is BrokerSettings:
        meanings = {**attribute_docs(Behaviour), **meanings}
    parameters = inspect.signature(handle_class(SERVICES[fixture]).__init__).parameters
    for name, annotation in kind.__annotations__.items():
        if name == "name":
            continue
        written = getattr(annotation, "__forward_arg__", annotation)
        text = meanings.get(name) or meanings[f"{name}_ms"]
        yield f"`{name}`", _type(written), f"`{_literal(parameters[name].default)}`", text


def _type(written: str) -> str:
    """An annotation in words a reader of the table knows."""
    for name, words in _NAMED.items():
        written = re.sub(rf"\b{name}\b", words, written)
    written = re.sub(r"Literal\[(.*?)\]", lambda found: found[1].replace(", ", " | "), written)
    return "`" + written.replace("'", '"') + "`"


_NAMED = {
    "Duration": "duration",
    "Dialect": 'Literal["vendor", "redis"]',
    "IntText": 'Literal["integer", "int"]',
    "Isolation": 'Literal["prefix", "database", "none"]',
    "DeliveryMode": 'Literal["driven", "background"]',
    "Unstubbed": 'Literal["refuse", "accept"]',
    "SignatureClock": 'Literal["receiver", "real", "virtual"]',
    "SourceSpelling": 'Literal["both", "service", "specification"]',
    "LeakCheck": 'Literal["off", "pending", "dead_letters", "all"]',
    "HeaderPrefix": 'Literal["Upstash", "Service"]',
    "Profile": 'Literal["free", "payg"]',
    "Any": "object",
}


def _literal(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple) and value:
        return f"({', '.join(map(_literal, value))})"
    return repr(value)


def _limits_of(kind: Any) -> Iterator[str]:
    if kind is VectorSettings:
        yield "\nIts `limits`; None means there is none:\n\n"
        yield table(("Limit", "Default"), _limits(VectorLimits))
        names = ", ".join(f'`"{name}"`' for name in MODELS)
        yield f"\nThe models that `embedding` knows by name: {names}.\n"
    elif kind is BrokerSettings:
        yield "\nThe fields of `BrokerLimits`; None means there is none:\n\n"
        yield table(("Limit", "Default"), _limits(BrokerLimits))
    elif kind is QueueSettings:
        yield (
            "\nIts `limits`, and what the plans of `profile` make of them. Sizes are in bytes; names "
            "that end in `_us` take microseconds, which are written as days, hours and minutes "
            "here. None means there is none:\n\n"
        )
        plans = [PlanLimits(), *PROFILES.values()]
        yield table(
            ("Limit", "no plan", *PROFILES),
            (
                (
                    f"`{field.name}`",
                    *(_amount(field.name, getattr(plan, field.name)) for plan in plans),
                )
                for field in fields(PlanLimits)
            ),
        )


def _limits(kind: Any) -> Iterator[tuple[str, str]]:
    for field in fields(kind):
        assert field.default is not MISSING
        yield f"`{field.name}`", _amount(field.name, field.default)


def _amount(name: str, value: int | None) -> str:
    if value is None:
        return "None"
    if name.endswith("_us"):
        for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000)):
            if value % size == 0:
                return f"{value // size:,} {unit}"
    return f"{value:,}"
