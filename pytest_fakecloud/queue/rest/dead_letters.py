"""Endpoints for the dead-letter queue."""

from __future__ import annotations

from typing import ClassVar

from ...http.messages import Json, Request
from ..errors import not_found
from ..model import Message
from ..wire import records
from ..wire.values import without_none
from .bulk_requests import bulk_filters, has_id_field
from .family import QueueRoute, RouteFamily
from .requests import query_of


class DeadLetterRoutes(RouteFamily):
    """Endpoints that list, retry and delete dead letters. Those of workflow runs derive from them."""

    keeps_empty_filters: ClassVar[bool] = True
    """Whether an empty filter of a bulk request matches nothing. Otherwise it is ignored."""

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        return [
            cls.route("GET", "/v2/dlq", "list_dead_letters", cls.list_dead_letters),
            cls.route("DELETE", "/v2/dlq", "delete_dead_letters", cls.delete_dead_letters),
            cls.route("POST", "/v2/dlq/retry", "retry_dead_letters", cls.retry_dead_letters),
            cls.route("POST", "/v2/dlq/retry/{id}", "retry_dead_letter", cls.retry_dead_letter),
            cls.route("GET", "/v2/dlq/{id}", "get_dead_letter", cls.get_dead_letter),
            cls.route("DELETE", "/v2/dlq/{id}", "delete_dead_letter", cls.delete_dead_letter),
        ]

    def list_dead_letters(self, request: Request) -> object:
        letters, cursor = self._letters(query_of(request), request)
        messages = [records.dead_letter_record(self.engine, letter) for letter in letters]
        return {"messages": messages} | without_none(cursor=cursor)

    def get_dead_letter(self, request: Request) -> object:
        return records.dead_letter_record(self.engine, self._letter(request))

    def delete_dead_letter(self, request: Request) -> object:
        self.engine.delete_dead_letters([self._letter(request)])
        return None

    def delete_dead_letters(self, request: Request) -> object:
        pairs = bulk_filters(request, "dlqIds", keep_empty=self.keeps_empty_filters)
        letters, cursor = self._letters(pairs, request)
        count = self.engine.delete_dead_letters(letters)
        return {"deleted": count} | without_none(cursor=cursor)

    def retry_dead_letter(self, request: Request) -> Json:
        (accepted,) = self.engine.retry_dead_letters([self._letter(request)], request.headers.pairs)
        return Json(records.accepted_record(accepted), 201)

    def retry_dead_letters(self, request: Request) -> Json:
        pairs = bulk_filters(request, "dlqIds", keep_empty=self.keeps_empty_filters)
        letters, cursor = self._letters(pairs, request)
        fields = records.read_filters(pairs, records.FOR_DEAD_LETTERS).fields
        ids = fields.get("dlqIds") or fields.get("dlqId")
        if ids and not letters:
            raise not_found("dlq message", ", ".join(ids))
        accepted = self.engine.retry_dead_letters(letters, request.headers.pairs)
        responses = [records.accepted_record(message) for message in accepted]
        return Json({"cursor": cursor or "", "responses": responses}, 201)

    # -- for both families -------------------------------------------------------------------------

    def _letter(self, request: Request) -> Message:
        """Return the dead letter in the path; raise a 404 error if it does not exist."""
        return self.engine.dead_letter(request.segment("id"))

    def _letters(
        self, pairs: list[tuple[str, str]], request: Request
    ) -> tuple[list[Message], str | None]:
        """Return a page of the dead letters that a request selects, and the next cursor."""
        chosen = records.read_filters(pairs, records.FOR_DEAD_LETTERS)
        if chosen.empty and has_id_field(request, "dlqIds"):
            return [], None
        return self._select(chosen)

    def _select(self, chosen: records.Filters) -> tuple[list[Message], str | None]:
        return self.engine.select_dead_letters(chosen)
