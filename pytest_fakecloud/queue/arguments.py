"""Validate the arguments of the ``queue`` fake's methods and convert them to headers.

Every function raises ``ContractError`` for an invalid argument, so that a mistake in a test cannot
be confused with an error of the service or a bug of the fake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Required, TypedDict

from ..core.errors import ContractError
from ..core.timeparse import Duration, duration_us
from ..core.wording import unknown_name
from ..faults.answers import bytes_of, json_bytes
from .model import HeaderList
from .wire.values import as_wire, unprefixed


class FlowControl(TypedDict, total=False):
    """Flow control of a message to publish.

    Messages with the same ``key`` share its limits: at most ``parallelism`` deliveries at a time,
    and at most ``rate`` deliveries started within each ``period`` (one second by default).
    """

    key: Required[str]
    parallelism: int
    rate: int
    period: Duration


class _Absent:
    def __repr__(self) -> str:
        return "<anything>"


ABSENT: Any = _Absent()
"""Default of arguments for which None is a valid value."""


def text(name: str, value: object) -> str:
    """Return a string as UTF-8, with one character per byte."""
    if not isinstance(value, str):
        raise ContractError(f"{name}={value!r} is not a string; pass a str")
    return as_wire(value)


def in_seconds(name: str, value: Duration) -> str:
    """Return a duration as the service writes it (``"90s"``)."""
    microseconds = duration_us(value)
    if microseconds % 1_000_000:
        raise ContractError(f"{name}={value!r} is invalid; pass a whole number of seconds")
    return f"{microseconds // 1_000_000}s"


def body_of(body: object, json: object) -> bytes:
    if json is not ABSENT:
        if body != b"":
            raise ContractError("pass json= or body=, not both")
        return json_bytes("json", json)
    if isinstance(body, str | bytes | bytearray | memoryview):
        return bytes_of(body)
    raise ContractError(
        f"body={body!r} is invalid; pass bytes or a string, or json= for any other value"
    )


def setting_pairs(settings: object) -> HeaderList:
    pairs = _pairs("settings", settings)
    for name, _ in pairs:
        if unprefixed(name) is None and name.lower() != "content-type":
            raise ContractError(
                f"settings={{{name!r}: ...}} is not a header of the service; pass"
                f" 'Upstash-{name}', or use headers= for the destination's headers"
            )
    return pairs


def forwarded_pairs(headers: object) -> HeaderList:
    return [(f"Upstash-Forward-{name}", value) for name, value in _pairs("headers", headers)]


def publish_pairs(
    *,
    json: object,
    headers: object,
    delay: Duration | None,
    retries: object,
    callback: object,
    failure_callback: object,
    method: object,
    label: object,
    timeout: Duration | None,
    flow_control: object,
    settings: object,
    deduplication_id: object = None,
) -> HeaderList:
    """Return the headers of a request to publish a message or to create a schedule."""
    pairs = setting_pairs(settings) + forwarded_pairs(headers)
    headers_of: tuple[tuple[str, Any, Callable[[str, Any], str]], ...] = (
        ("Method", method, text),
        ("Callback", callback, text),
        ("Failure-Callback", failure_callback, text),
        ("Deduplication-Id", deduplication_id, text),
        ("Retries", retries, lambda _, value: str(value)),
        ("Label", label, labels_of),
        ("Delay", delay, in_seconds),
        ("Timeout", timeout, in_seconds),
    )
    for header, value, formatted in headers_of:
        if value is not None:
            name = header.lower().replace("-", "_")
            pairs.append((f"Upstash-{header}", formatted(name, value)))
    if flow_control is not None:
        pairs += flow_control_pairs(flow_control)
    if json is not ABSENT:
        pairs.append(("Content-Type", "application/json"))
    return pairs


def labels_of(name: str, label: object) -> str:
    labels = [label] if isinstance(label, str) or not isinstance(label, Iterable) else [*label]
    return ",".join(text(name, one) for one in labels)


def flow_control_pairs(flow_control: object) -> HeaderList:
    known = FlowControl.__annotations__
    if not isinstance(flow_control, Mapping) or "key" not in flow_control:
        raise ContractError(
            f"flow_control={flow_control!r} is invalid; pass a dict of {', '.join(known)}, of which"
            " key is required"
        )
    limits = []
    for name, value in flow_control.items():
        if name not in known:
            raise ContractError(unknown_name("key of flow_control", name, known))
        if name == "period":
            limits.append(f"period={in_seconds('period', value)}")
        elif name != "key":
            if isinstance(value, bool) or not isinstance(value, int):
                raise ContractError(
                    f"flow_control[{name!r}]={value!r} is invalid; pass a whole number"
                )
            limits.append(f"{name}={value}")
    pairs = [("Upstash-Flow-Control-Key", text("flow_control['key']", flow_control["key"]))]
    if limits:
        pairs.append(("Upstash-Flow-Control-Value", ",".join(limits)))
    return pairs


def _pairs(what: str, given: object) -> HeaderList:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise ContractError(f"{what}={given!r} is invalid; pass a dict of strings")
    return [(text(f"{what} name", name), text(f"{what}[{name!r}]", given[name])) for name in given]
