"""The fields by which messages, attempts and other objects of a queue can be filtered.

This module contains the types of all fields, and the table of an attempt's fields. The tables for
messages, dead letters and schedules are in ``views``. ``core.matching`` compares the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.field_types import MESSAGE_ID, URL, Absent, FieldType, OneOf, Shaped, either
from ..core.matching import HEADERS, Field, fields_of
from ..core.results import Results, results_of
from ..core.wording import brief
from .errors import QueueError
from .model import KINDS, Attempt
from .wire.headers import NAMED


def json_of(read: Callable[[Any], Any], body: Callable[[Any], bytes]) -> Callable[[Any], Any]:
    """Return a function that reads an item's JSON body, or returns ``Absent`` if it is not JSON.

    For example, ``read`` is ``PublishedMessage.json``, and ``body`` returns the message's bytes.
    """

    def value(item: Any) -> Any:
        try:
            return read(item)
        except (ValueError, RecursionError):
            return Absent(f"not JSON ({brief(body(item))})")

    return value


def always(field_type: FieldType, **options: Any) -> Field:
    """Return a field that is never None."""
    return Field(field_type, optional=False, **options)


DLQ_ID = Shaped(
    "the id of a dead letter", "1767225600000-0", never=r"[^0-9-]", fits=lambda text: "-" in text
)
NAME = Shaped("a name", "orders", never=r"[^A-Za-z0-9._-]", fits=bool)
"""The name of a queue or a URL group."""
DESTINATION = either((URL, NAME, OneOf("destination", NAMED)))
"""A URL, the name of a URL group, or the name of one of the service's own destinations."""
LABEL = Shaped("a label", "billing", never=",", fits=lambda text: text == text.strip() != "")
"""The type of the label field. A comma separates labels in the header, so no label contains one."""


def _is_cron(text: str) -> bool:
    # Imported here, because the import takes 4 ms and few tests have a schedule.
    from .wire.cron import Cron

    try:
        Cron(text)
    except QueueError:
        return False
    return True


CRON = Shaped("a cron expression", "0 9 * * *", fits=_is_cron)
ATTEMPTS: Mapping[str, Field] = {
    **fields_of(Attempt),
    "message_id": always(MESSAGE_ID),
    "url": always(URL),
    "kind": always(OneOf("kind", KINDS)),
    "state": always(OneOf("state", ("in flight", "delivered", "failed", "lost"))),
    "headers": always(HEADERS),
}
"""Fields of an attempt, by name."""


def found_attempts(attempts: Iterable[Attempt]) -> Results[Attempt]:
    """Return attempts as a list that can be filtered with ``where()``."""
    return results_of(attempts, ATTEMPTS, "attempt")
