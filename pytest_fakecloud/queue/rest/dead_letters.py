"""Endpoints for the dead-letter queue."""

from __future__ import annotations

from ...http.messages import Json, Request
from ..engine.engine import Engine
from ..errors import not_found
from ..model import Message
from ..wire import records
from ..wire.values import without_none
from .bulk_requests import bulk_filters, has_id_field
from .requests import query_of
from .routing import QueueRoute


def list_dead_letters(engine: Engine, request: Request, *, of_runs: bool = False) -> object:
    letters, cursor = select_letters(engine, query_of(request), request, of_runs=of_runs)
    messages = [records.dead_letter_record(engine, letter) for letter in letters]
    return {"messages": messages} | without_none(cursor=cursor)


def get_dead_letter(engine: Engine, request: Request, *, of_runs: bool = False) -> object:
    return records.dead_letter_record(engine, read_letter(engine, request, of_runs=of_runs))


def delete_dead_letter(engine: Engine, request: Request) -> None:
    engine.dead_letters.delete([read_letter(engine, request)])


def delete_dead_letters(engine: Engine, request: Request, *, of_runs: bool = False) -> object:
    pairs = bulk_filters(request, "dlqIds", keep_empty=not of_runs)
    letters, cursor = select_letters(engine, pairs, request, of_runs=of_runs)
    count = engine.dead_letters.delete(letters)
    return {"deleted": count} | without_none(cursor=cursor)


def retry_dead_letter(engine: Engine, request: Request) -> Json:
    (accepted,) = engine.publisher.retry_dead_letters(
        [read_letter(engine, request)], request.headers.pairs
    )
    return Json(records.accepted_record(accepted), 201)


def retry_dead_letters(engine: Engine, request: Request) -> Json:
    pairs = bulk_filters(request, "dlqIds", keep_empty=True)
    letters, cursor = select_letters(engine, pairs, request)
    fields = records.read_filters(pairs, records.FOR_DEAD_LETTERS).fields
    ids = fields.get("dlqIds") or fields.get("dlqId")
    if ids and not letters:
        raise not_found("dlq message", ", ".join(ids))
    accepted = engine.publisher.retry_dead_letters(letters, request.headers.pairs)
    responses = [records.accepted_record(message) for message in accepted]
    return Json({"cursor": cursor or "", "responses": responses}, 201)


def read_letter(engine: Engine, request: Request, *, of_runs: bool = False) -> Message:
    """Return the dead letter in the path; raise a 404 error if it does not exist."""
    letter = engine.dead_letters.get(request.segment("id"))
    if of_runs and letter.workflow is None:
        raise not_found("dlq message", request.segment("id"))
    return letter


def select_letters(
    engine: Engine, pairs: list[tuple[str, str]], request: Request, *, of_runs: bool = False
) -> tuple[list[Message], str | None]:
    """Return a page of the dead letters that a request selects, and the next cursor. An empty filter
    matches nothing, or is ignored if the dead letters are those of workflow runs.
    """
    if of_runs:
        pairs = [pair for pair in pairs if pair[1] and pair[0] != "source"]
    chosen = records.read_filters(pairs, records.FOR_DEAD_LETTERS)
    if chosen.empty and has_id_field(request, "dlqIds"):
        return [], None
    if of_runs:
        chosen.fields["source"] = ["workflow"]
    return engine.dead_letters.select(chosen)


ROUTES = [
    QueueRoute("GET", "/v2/dlq", "list_dead_letters", list_dead_letters),
    QueueRoute("DELETE", "/v2/dlq", "delete_dead_letters", delete_dead_letters),
    QueueRoute("POST", "/v2/dlq/retry", "retry_dead_letters", retry_dead_letters),
    QueueRoute("POST", "/v2/dlq/retry/{id}", "retry_dead_letter", retry_dead_letter),
    QueueRoute("GET", "/v2/dlq/{id}", "get_dead_letter", get_dead_letter),
    QueueRoute("DELETE", "/v2/dlq/{id}", "delete_dead_letter", delete_dead_letter),
]
