"""Endpoints for dead letters and logs: ``/v2/dlq``, ``/v2/events`` and ``/v2/logs``."""

from __future__ import annotations

from ...http.messages import Answer, Request
from ...http.routing import Route
from ..engine.dead_letters import DeadLetter
from ..engine.engine import Engine
from ..engine.publishing import Accepted
from ..errors import not_found
from ..wire import filters, records
from .payloads import (
    Endpoints,
    accepted_record,
    bulk_pairs,
    cursor_field,
    empty,
    has_empty_ids,
    query_of,
    refuse_empty_id,
    segment,
)

_MAX_LOGS = 100
"""Maximum page size in the vendor's OpenAPI file. (The Python client says 1000, but follows the
cursor.)
"""


def letter_record(engine: Engine, row: DeadLetter) -> records.Record:
    message = engine.dead_letters.message(row)
    shown = records.dead_letter_record(message, row.id, engine.settings.no_answer_status)
    return shown | engine.workflow.dead_letter_fields(message)


class HistoryRoutes(Endpoints):
    """Endpoints for dead letters and logs."""

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v2/dlq", "list_dead_letters", self.list_dead_letters),
            Route("DELETE", "/v2/dlq", "delete_dead_letters", self.delete_dead_letters),
            Route("POST", "/v2/dlq/retry", "retry_dead_letters", self.retry_dead_letters),
            Route("POST", "/v2/dlq/retry/{id}", "retry_dead_letter", self.retry_dead_letter),
            Route("GET", "/v2/dlq/{id}", "get_dead_letter", self.get_dead_letter),
            Route("DELETE", "/v2/dlq/{id}", "delete_dead_letter", self.delete_dead_letter),
            Route("GET", "/v2/events", "list_events", self.list_events),
            Route("GET", "/v2/logs", "list_logs", self.list_logs),
        ]

    # -- dead letters ----------------------------------------------------------------------------

    def list_dead_letters(self, request: Request) -> object:
        chosen = filters.read_filters(query_of(request), filters.FOR_DEAD_LETTERS)
        rows, cursor = self.engine.dead_letters.select(chosen)
        shown = [letter_record(self.engine, row) for row in rows]
        return {"messages": shown} | cursor_field(cursor)

    def get_dead_letter(self, request: Request) -> object:
        row = self.engine.dead_letters.get(segment(request, "id"))
        return letter_record(self.engine, row)

    def delete_dead_letter(self, request: Request) -> Answer:
        letters = self.engine.dead_letters
        letters.delete([letters.get(segment(request, "id"))])
        return empty()

    def delete_dead_letters(self, request: Request) -> object:
        rows, cursor = self._chosen_letters(request)
        return {"deleted": self.engine.dead_letters.delete(rows)} | cursor_field(cursor)

    def retry_dead_letter(self, request: Request) -> Answer:
        letters = self.engine.dead_letters
        (accepted,) = self._retry([letters.get(segment(request, "id"))], request)
        return Answer(accepted_record(accepted), 201)

    def retry_dead_letters(self, request: Request) -> Answer:
        rows, cursor = self._chosen_letters(request, known=True)
        responses = [accepted_record(one) for one in self._retry(rows, request)]
        return Answer({"cursor": cursor or "", "responses": responses}, 201)

    def _chosen_letters(
        self, request: Request, *, known: bool = False
    ) -> tuple[list[DeadLetter], str | None]:
        """Return the page of dead letters that a bulk request selects, and the cursor of the next
        page.

        With ``known``, raise a 404 error if ids are given and none of them exists.
        """
        refuse_empty_id(request, "dlq message")
        chosen = filters.read_filters(
            bulk_pairs(request, "dlqIds", empty=True), filters.FOR_DEAD_LETTERS
        )
        if chosen.empty and has_empty_ids(request, "dlqIds", "dlqId"):
            return [], None
        rows, cursor = self.engine.dead_letters.select(chosen)
        ids = chosen.fields.get("dlqIds") or chosen.fields.get("dlqId")
        if known and ids and not rows:
            raise not_found("dlq message", ", ".join(ids))
        return rows, cursor

    def _retry(self, rows: list[DeadLetter], request: Request) -> list[Accepted]:
        letters = self.engine.dead_letters
        plain = [
            (name, value) for name, value in request.headers.pairs if name.lower() != "content-type"
        ]
        accepted = self.engine.publisher.retry_dead_letters(map(letters.message, rows), plain)
        letters.delete(rows)
        return accepted

    # -- logs ---------------------------------------------------------------------------------

    def _log_page(self, request: Request) -> tuple[list[records.Record], dict[str, str]]:
        engine = self.engine
        chosen = filters.read_filters(query_of(request), filters.FOR_LOGS, most=_MAX_LOGS)
        no_answer = engine.settings.no_answer_status
        rows, cursor = engine.history.log_page(chosen)
        found = [
            records.log_record(row, engine.messages[row.message_id], no_answer) for row in rows
        ]
        return found, cursor_field(cursor)

    def list_events(self, request: Request) -> object:
        rows, cursor = self._log_page(request)
        return {"events": rows} | cursor

    def list_logs(self, request: Request) -> object:
        rows, cursor = self._log_page(request)
        return {"logs": rows, "events": rows} | cursor
