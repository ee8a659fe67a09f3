"""The data of a fake as plain JSON, for scripts and for fakes without a page in the console."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.timeparse import to_datetime
from ..faults.plan import fault_words
from ..handle import Handle
from ..services import find, view_of
from .control.shapes import Attempt, DeadLetter, HandleEntry, Message

MOST = 500
"""Maximum number of keys, vectors, records or messages in a view. The view's counts also include
the items beyond this limit.
"""
MOST_RUNS = 20
"""Maximum number of workflow runs in a view."""


def iso_time(at_us: int) -> str:
    """Return a time as ISO 8601. A time after the year 9999 is shown as the last moment of that
    year.
    """
    return to_datetime(at_us).isoformat()


def describe(handle: Handle) -> HandleEntry:
    """Return a fake's address and credentials without opening a port."""
    return {
        "name": handle.name,
        "fixture": handle.fixture,
        "service": handle.service,
        "url": handle.url,
        "env": handle._env_variables(),
        "headers": handle.headers,
    }


def view(handle: Handle) -> dict[str, Any]:
    """Return the data of a fake, or only its identity if its service has no view."""
    show = view_of(find(handle.fixture))
    content = {} if show is None else show(handle)
    return {
        "name": handle.name,
        "service": handle.service,
        "fixture": handle.fixture,
        "fault_kinds": [word for word in fault_words(type(handle.faults)) if word != "call"],
        **content,
    }


def _text(value: Any) -> Any:
    """Return a value with bytes decoded and keys as strings, at every level."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {str(_text(key)): _text(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_text(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def kv_view(handle: Any) -> dict[str, Any]:
    from ..kv.engine.eviction import used_memory

    keys = handle.keys()
    rows = []
    for key in keys[:MOST]:
        rows.append(
            {
                "key": _text(key),
                "type": _text(handle.execute("TYPE", key)),
                "ttl": handle.ttl(key),
                "value": _text(handle.value(key)),
            }
        )
    return {"count": len(keys), "memory": used_memory(handle._engine.databases), "keys": rows}


def vector_view(handle: Any) -> dict[str, Any]:
    """Return the vectors of an index by namespace. Each vector, and the last query's, is projected
    onto a plane.
    """
    namespaces = []
    for namespace in handle.namespaces():
        count = handle._engine.count(namespace)
        items = [dict(item) for item in handle.vectors(namespace, limit=MOST)]
        vectors = [item.pop("vector", None) or [] for item in items]
        asked, found = last_query(handle, namespace)
        *points, query = projected(vectors, asked)
        shown = [
            {**_text(item), "point": point, "dimension": len(vector)}
            for item, vector, point in zip(items, vectors, points, strict=True)
        ]
        entry = {"name": namespace, "count": count, "vectors": shown}
        namespaces.append(entry | {"query": query and {"point": query, "found": found}})
    # Use `describe()`, because `info()` would make pending changes visible.
    info = dataclasses.asdict(handle._engine.describe())
    del info["namespaces"]
    return {"info": _text(info), "namespaces": namespaces}


def last_query(handle: Any, namespace: str) -> tuple[list[float], list[str]]:
    """Return the dense vector of the last successful query and the ids it returned, or two empty
    lists.
    """
    for call in reversed(handle.journal.calls()):
        if call.route not in ("query", "query-data") or call.status != 200:
            continue
        if call.facts.get("namespace") != namespace:
            continue
        with contextlib.suppress(ValueError, KeyError, TypeError):
            body, result = json.loads(call.body), json.loads(call.answer)["result"]
            embedder, size = handle._app.embedder, handle._app.engine.dimension
            text = call.route == "query-data" and embedder is not None
            if not isinstance(body, dict):
                continue  # a batch of queries
            vector = (
                embedder.embed(body["data"], dimension=size, query=True)[0]
                if text
                else body["vector"]
            )
            return [float(one) for one in vector], [str(hit["id"]) for hit in result]
    return [], []


def projected(
    vectors: Iterable[list[float]], query: Sequence[float] = ()
) -> list[list[float] | None]:
    """Project vectors and a query onto the first two principal components; the last point is the
    query.

    The point is None for a vector without a dense part and for a query of another dimension.
    """
    import numpy as np

    rows = list(vectors)
    dense = [index for index, row in enumerate(rows) if row]
    points: list[list[float] | None] = [None] * (len(rows) + 1)
    if not dense:
        return points
    matrix = np.asarray([rows[index] for index in dense], dtype=np.float64)
    centre = matrix.mean(axis=0)
    centred = matrix - centre
    # Decompose the Gram matrix, whose size does not depend on the dimension. A full decomposition
    # of the vectors would take a second for 500 rows.
    sizes, rotated = np.linalg.eigh(centred @ centred.T)
    axes = np.zeros((matrix.shape[1], 2))
    for axis in range(min(2, len(sizes))):
        size = sizes[-1 - axis]
        # Skip a direction without extent, whose components are only rounding errors.
        if size > max(1e-300, 1e-12 * sizes[-1]):
            axes[:, axis] = centred.T @ rotated[:, -1 - axis] / np.sqrt(size)
    flat = centred @ axes
    # The sign of a direction is arbitrary, so fix it to keep the picture from flipping on reload.
    signs = np.where(flat[np.abs(flat).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    for index, point in zip(dense, (flat * signs).tolist(), strict=True):
        points[index] = [round(float(value), 6) for value in point]
    if len(query) == matrix.shape[1]:
        asked = (np.asarray(query, dtype=np.float64) - centre) @ axes * signs
        points[-1] = [round(float(value), 6) for value in asked]
    return points


def broker_view(handle: Any) -> dict[str, Any]:
    topics = []
    for name in handle.topics():
        topic = handle.topic(name)
        topics.append(
            {
                "name": name,
                "count": len(topic.records),
                "partitions": [
                    {"partition": number, "start": start, "end": end}
                    for number, (start, end) in enumerate(
                        zip(topic.start_offsets, topic.end_offsets, strict=True)
                    )
                ],
                "records": [_text(record._asdict()) for record in topic.records[-MOST:]],
            }
        )
    groups = [group_view(handle.group(name)) for name in handle.groups()]
    return {"topics": topics, "groups": groups}


def group_view(group: Any) -> dict[str, Any]:
    return {
        "name": group.name,
        "state": group.state,
        "generation": group.generation,
        "total_lag": group.total_lag,
        "members": [
            {
                "name": member.name,
                "state": member.state,
                "assignment": [f"{tp.topic}-{tp.partition}" for tp in member.assignment],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "partition": f"{tp.topic}-{tp.partition}",
                "committed": group.committed.get(tp),
                "position": group.position.get(tp),
                "lag": lag,
            }
            for tp, lag in group.lag.items()
        ],
    }


def queue_view(handle: Any) -> dict[str, Any]:
    messages = handle.messages()
    return {
        "count": len(messages),
        "messages": [message_view(message) for message in messages[-MOST:]],
        "dead_letters": [dead_letter(letter) for letter in handle.dead_letters()],
        "schedules": [
            {
                "id": schedule.id,
                "cron": schedule.cron,
                "destination": schedule.destination,
                "paused": schedule.paused,
                "next": [run.isoformat() for run in schedule.next_runs(3)],
            }
            for schedule in handle.schedules()
        ],
        "workflows": _workflows(handle),
    }


def _workflows(handle: Any) -> list[dict[str, Any]]:
    from ..queue.workflow.log import run_record

    engine = handle._engine
    with engine.lock:
        runs = list(engine.workflow.runs.values())[-MOST_RUNS:]
        return [_text(run_record(engine, run)) for run in runs]


def message_view(message: Any) -> Message:
    return {
        "id": message.id,
        "kind": message.kind,
        "state": message.state,
        "method": message.method,
        "url": message.url,
        "retried": message.retried,
        "next": None if message.due is None else message.due.isoformat(),
        "max_retries": message.max_retries,
        "body": _text(message.body[:2000]),
        "timeline": message.timeline,
        "attempts": [attempt_view(attempt) for attempt in message.attempts],
    }


def attempt_view(attempt: Any) -> Attempt:
    return {
        "message": attempt.message_id,
        "url": attempt.url,
        "number": attempt.number,
        "at": iso_time(attempt.at_us),
        "waited": attempt.waited.total_seconds(),
        "why": attempt.wait_reason,
        "status": attempt.status,
        "state": attempt.state,
        "exception": None if attempt.exception is None else repr(attempt.exception),
        "final": attempt.is_final,
    }


def dead_letter(letter: Any) -> DeadLetter:
    return {
        "id": letter.id,
        "at": letter.at.isoformat(),
        "url": letter.url,
        "status": letter.status,
        "message": letter.message.id,
    }
