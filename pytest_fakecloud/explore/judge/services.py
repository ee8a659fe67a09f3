"""What the calls of each service mean for the patterns of anomalies, from their routes and headers."""

from __future__ import annotations

from typing import Any

from ...core.bodies import parsed
from ...queue.rest.app import PUBLISHING
from ..values.accesses import Access

_MESSAGES = frozenset({*PUBLISHING, "produce"})
"""Routes by which a client sends a message."""
STORES = _MESSAGES | {"upsert", "upsert-data"}
"""Routes by which a client stores or sends something that stays."""
OF_CONSUMERS = frozenset({"consume", "commit", "delete-consumer"})
"""Routes by which a consumer says where it is."""


def sends_message(access: Access) -> bool:
    """Return whether a call sends a message that nobody recognises as a duplicate."""
    if access.call is None or not access.has_effect or access.name not in _MESSAGES:
        return False
    return not any("deduplication" in name.lower() for name in access.call.request_headers)


def commits_records(access: Access) -> bool:
    """Return whether a call of a consumer commits records: by itself, or those that it receives. The
    answer that shows them may be lost.
    """
    if access.call is None or not access.call.reached:
        return False
    if access.name != "consume":
        return access.name == "commit"
    setting = access.call.request_headers.get("Kafka-Enable-Auto-Commit", "true")
    has_records = parsed(access.call.response_body) != []
    return has_records and setting.strip().lower() != "false"


def deletes_no_vector(access: Access) -> bool:
    """Return whether a call that deletes vectors finds none of them."""
    call = access.call
    if call is None or (access.name, call.service) != ("delete", "vector"):
        return False
    answer: Any = parsed(call.response_body)
    result = answer.get("result") if isinstance(answer, dict) else None
    return not (isinstance(result, dict) and result.get("deleted"))


def subject_of(access: Access) -> str:
    """Return the key, or the destination, group, topic, vectors or fake that a call is about."""
    key, call = access.keys[0], access.call
    if call is None:
        return key.name
    facts = [call.facts.get(name) for name in ("destination", "group", "topic", "ids", "prefix")]
    named: Any = next(filter(None, facts), key.fake)
    return named if isinstance(named, str) else ", ".join(map(str, named))
