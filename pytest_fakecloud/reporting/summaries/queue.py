"""What was published where and with which settings; callbacks decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...core.timeparse import to_datetime
from ..bodies import compact, decoded, parsed, readable, shortened
from .summary import Scene, Summary, listed, worked

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["callback", "summary"]

_SETTINGS = {
    "delay": "delay", "not-before": "not before", "retries": "retries",
    "retry-delay": "retry delay", "timeout": "timeout", "deduplication-id": "dedup",
    "content-based-deduplication": "content-based dedup", "callback": "callback",
    "failure-callback": "failure callback", "cron": "cron", "schedule-id": "schedule",
    "flow-control-key": "flow key", "flow-control-value": "flow", "label": "label",
    "queue-name": "queue",
}  # fmt: skip
"""The settings of a publish request that decide what happens, in few words."""


def summary(call: Call, scene: Scene) -> Summary | None:
    """A publish request, alone or in a batch; None for all else."""
    if call.route == "batch":
        items = parsed(call.body)
        shown = [
            " ".join(
                filter(
                    None,
                    [
                        _method(item.get("headers") or {}),
                        str(item["destination"]),
                        shortened(readable(item.get("body") or ""), 60),
                        *_settings((item.get("headers") or {}).items()),
                    ],
                )
            )
            for item in items
        ]
        return Summary(f"batch of {len(items)}", _accepted(call, scene), shown)
    destination = call.facts.get("url")
    if not isinstance(destination, str):
        return None
    verb = call.path.strip("/").split("/")[1]
    if verb == "enqueue":
        verb = f"enqueue on {call.facts.get('queue')}:"
    body = shortened(readable(call.body, call.header("Content-Type") or ""), 120)
    settings = ", ".join(_settings(call.headers, forwarded=True))
    method = _method(dict(call.headers))
    parts = [verb, method, destination, body, f"({settings})" if settings else ""]
    accepted = _accepted(call, scene)
    answer = parsed(call.answer) if worked(call) else None
    if isinstance(answer, dict) and "messageId" in answer and not answer.get("deduplicated"):
        scene.bodies[answer["messageId"]] = body
    return Summary(" ".join(filter(None, parts)), accepted)


def _method(headers: Mapping[str, Any]) -> str:
    """The method of the delivery; empty for the usual one."""
    lower = {name.lower(): value for name, value in headers.items()}
    method = str(lower.get("upstash-method", "POST"))
    return "" if method == "POST" else method


def _settings(headers: Iterable[tuple[str, Any]], forwarded: bool = False) -> Iterable[str]:
    """The settings; with the ``forwarded`` headers only where their secrets are hidden already."""
    for name, value in headers:
        setting = name.lower().removeprefix("upstash-")
        if name.lower().startswith("upstash-") and setting in _SETTINGS:
            # What is only said or not said needs no value.
            told = _SETTINGS[setting] + f" {value}" * (str(value).lower() != "true")
            in_utc = setting == "cron" and "TZ=" not in str(value)
            yield f"{told} in UTC: it names no time zone" if in_utc else told
        elif forwarded and setting.startswith("forward-"):
            yield f"{name}: {value}"


def _accepted(call: Call, scene: Scene) -> str:
    if call.number in scene.made:
        return scene.short(scene.made[call.number])
    if not worked(call):
        return ""
    at = f"{to_datetime(call.at_us):%H:%M:%S}"
    told = []
    for one in _flat(parsed(call.answer)):
        if "scheduleId" in one:
            told.append(f"schedule {one['scheduleId']}")
            continue
        message = one["messageId"]
        if one.get("deduplicated"):
            first = scene.published.get(message)
            since = f" at {first}" if first else ""
            told.append(f"{call.status} deduplicated, the same as {scene.short(message)}{since}")
        else:
            scene.published.setdefault(message, at)
            told.append(scene.short(message))
    return listed(told)


def _flat(answer: Any) -> Iterator[dict[str, Any]]:
    """Each message of an answer: of a batch, those of a URL group stand in a list of their own."""
    for one in answer if isinstance(answer, list) else [answer]:
        yield from one if isinstance(one, list) else [one]


def callback(call: Call, scene: Scene) -> Summary | None:
    """What the queue tells of a message, with the answer and the body it is about."""
    body = parsed(call.body)
    if not isinstance(body, dict) or "sourceMessageId" not in body:
        return None
    about: dict[str, Any] = decoded(body)
    what = (
        f"{call.method} {call.path}: "
        f"status {about.get('status')}, retried {about.get('retried')} of {about.get('maxRetries')}"
    )
    below = [
        f"{word} {shortened(value if isinstance(value, str) else compact(value), 120)}"
        for word, name in (("answered", "body"), ("published", "sourceBody"))
        if (value := about.get(name)) not in (None, "")
    ]
    return Summary(what, "", below)
