"""Messages that were published again from the console, and the messages that they repeat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...cloud.cloud import Cloud
from ...cloud.fake import Fake
from ...core.calls import Call, Event
from ...reporting.lookups import records_of


class Resend(NamedTuple):
    """The id of a message, and that of the message that repeats it."""

    original: str
    repeated: str


def resends(cloud: Cloud, fake: Fake) -> Iterator[Resend]:
    """Yield the messages of a queue that repeat that of a delivery, in the order of their calls."""
    entries = {entry.number: entry for entry in cloud.journal.entries if entry.fake == fake.name}
    for number, again_of in sorted(records_of(cloud).from_console.items()):
        call, delivery = entries.get(number), entries.get(again_of)
        if isinstance(call, Call) and isinstance(delivery, Event) and delivery.data:
            original = delivery.data.get("message_id")
            for repeated in _published(call):
                if original:
                    yield Resend(str(original), repeated)


def repeated(cloud: Cloud, fake: Fake) -> dict[str, list[str]]:
    """Return the messages of a queue that were sent again, each with those that repeat it."""
    found: dict[str, list[str]] = {}
    for resend in resends(cloud, fake):
        found.setdefault(resend.original, []).append(resend.repeated)
    return found


def with_resends(message: dict[str, Any], cloud: Cloud, fake: Fake) -> dict[str, Any]:
    """Return a message with the ids of the messages that repeat it, and of the one that it repeats."""
    pairs, id = list(resends(cloud, fake)), message["public_id"]
    return message | {
        "resent_as": [pair.repeated for pair in pairs if pair.original == id],
        "resent_from": next((pair.original for pair in pairs if pair.repeated == id), None),
    }


def _published(call: Call) -> list[str]:
    """Return the ids of the messages that a call has published, from its response."""
    try:
        answer = json.loads(call.response_body or b"null")
    except ValueError:
        return []
    answers = answer if isinstance(answer, list) else [answer]
    return [
        str(one["messageId"]) for one in answers if isinstance(one, dict) and "messageId" in one
    ]
