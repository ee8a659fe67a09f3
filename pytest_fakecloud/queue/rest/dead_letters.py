"""Endpoints for the dead-letter queue."""

from __future__ import annotations

from ...http.messages import Answer, Request
from ...http.routing import Route
from ..errors import not_found
from ..model import Message
from ..wire import records
from ..wire.values import without_none
from .bulk_requests import bulk_filters, has_id_field, recorded_action
from .family import RouteFamily
from .requests import query_of


class DeadLetterRoutes(RouteFamily):
    """Endpoints that list, retry and delete dead letters."""

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            Route("GET", "/v2/dlq", "list_dead_letters", cls.list_dead_letters),
            Route("DELETE", "/v2/dlq", "delete_dead_letters", cls.delete_dead_letters),
            Route("POST", "/v2/dlq/retry", "retry_dead_letters", cls.retry_dead_letters),
            Route("POST", "/v2/dlq/retry/{id}", "retry_dead_letter", cls.retry_dead_letter),
            Route("GET", "/v2/dlq/{id}", "get_dead_letter", cls.get_dead_letter),
            Route("DELETE", "/v2/dlq/{id}", "delete_dead_letter", cls.delete_dead_letter),
        ]

    def list_dead_letters(self, request: Request) -> object:
        chosen = records.read_filters(query_of(request), records.FOR_DEAD_LETTERS)
        letters, cursor = self.engine.select_dead_letters(chosen)
        messages = [records.dead_letter_record(self.engine, letter) for letter in letters]
        return {"messages": messages} | without_none(cursor=cursor)

    def get_dead_letter(self, request: Request) -> object:
        return records.dead_letter_record(
            self.engine, self.engine.dead_letter(request.segment("id"))
        )

    def delete_dead_letter(self, request: Request) -> None:
        self.engine.delete_dead_letters([self.engine.dead_letter(request.segment("id"))])

    def delete_dead_letters(self, request: Request) -> object:
        pairs, asynchronous = bulk_filters(request, "dlqIds", keep_empty=True)
        letters, cursor = self._chosen_letters(request, pairs)
        count = self.engine.delete_dead_letters(letters)
        action = recorded_action(
            self.engine, "delete", "qstash", count, pairs, asynchronous=asynchronous
        )
        return {"deleted": count} | action | without_none(cursor=cursor)

    def retry_dead_letter(self, request: Request) -> Answer:
        letter = self.engine.dead_letter(request.segment("id"))
        (accepted,) = self.engine.retry_dead_letters([letter], request.headers.pairs)
        return Answer(records.accepted_record(accepted), 201)

    def retry_dead_letters(self, request: Request) -> Answer:
        pairs, asynchronous = bulk_filters(request, "dlqIds", keep_empty=True)
        letters, cursor = self._chosen_letters(request, pairs, must_exist=True)
        accepted = self.engine.retry_dead_letters(letters, request.headers.pairs)
        responses = [records.accepted_record(message) for message in accepted]
        action = recorded_action(
            self.engine, "retry", "qstash", len(letters), pairs, asynchronous=asynchronous
        )
        return Answer({"cursor": cursor or "", "responses": responses} | action, 201)

    def _chosen_letters(
        self, request: Request, pairs: list[tuple[str, str]], *, must_exist: bool = False
    ) -> tuple[list[Message], str | None]:
        """Return a page of the dead letters that a bulk request selects, and the next cursor.

        With ``must_exist``, raise a 404 error if ids are given and none of them exists.
        """
        chosen = records.read_filters(pairs, records.FOR_DEAD_LETTERS)
        if chosen.empty and has_id_field(request, "dlqIds"):
            return [], None
        letters, cursor = self.engine.select_dead_letters(chosen)
        ids = chosen.fields.get("dlqIds") or chosen.fields.get("dlqId")
        if must_exist and ids and not letters:
            raise not_found("dlq message", ", ".join(ids))
        return letters, cursor
