"""The masking of credentials in calls, events, actions, requests, and in what a test looked at."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..cloud.base import BaseCloud, secrets_in
from ..core.calls import Action, Call, Event, Headers, set_facts
from ..core.characters import map_strings
from ..core.secrets import HIDDEN, SecretMask
from ..process.applications import ServedRequest
from .accesses import ReportSubject, Sought
from .contract import functions_of
from .model import Finding, MaskedAction, MaskedCall, MaskedEvent, MaskedRequest


class Mask(SecretMask):
    """Masks credentials in what a report shows: the given ``secrets`` and those of a cloud's fakes."""

    def __init__(self, cloud: BaseCloud | None = None, *, secrets: Iterable[str] = ()) -> None:
        super().__init__({*secrets, *(() if cloud is None else secrets_in(cloud))})

    def target(self, call: Call) -> str:
        path = call.target.partition("?")[0]
        if path.count("/") > 1 and functions_of(call.service).calls.hides_body(call):
            return f"{path[: path.index('/', 1)]}/{HIDDEN}"
        return self.text(call.target)

    def body(self, call: Call) -> bytes:
        """Return a call's request body, hidden whole if a password may be at any place in it."""
        if call.request_body and functions_of(call.service).calls.hides_body(call):
            return HIDDEN.encode()
        return self.data(call.request_body)

    def call(self, call: Call) -> MaskedCall:
        """Return a copy of a call, masked before it is shortened so that no part of a secret remains."""
        masked = copy.copy(call)
        masked.target = self.target(call)
        masked.request_headers = Headers(self.headers(call.request_headers.pairs))
        masked.request_body = self.body(call)
        masked.response_body = self.data(call.response_body)
        masked.response_headers = Headers(self.headers(call.response_headers.pairs))
        masked.note = self.text(call.note)
        set_facts(masked, self.value(call.facts))
        return MaskedCall(masked)

    def value(self, value: Any) -> Any:
        """Return a JSON value, or arguments, with every string in it masked."""
        return map_strings(value, self.text)

    def event(self, event: Event) -> MaskedEvent:
        masked = copy.copy(event)
        masked.text, masked.data = self.text(event.text), self._details(event)
        return MaskedEvent(masked)

    def action(self, action: Action) -> MaskedAction:
        masked = copy.copy(action)
        masked.text, masked.data = self.text(action.text), self._details(action)
        masked.call = action.call and self.value(action.call)
        return MaskedAction(masked)

    def _details(self, event: Event) -> dict[str, Any]:
        return {key: self.headers(content or ()) if key == "sent_headers" else self.value(content)
                for key, content in event.data.items()}  # fmt: skip

    def finding(self, finding: Finding) -> Finding:
        subjects = tuple(map(self.subject, finding.subjects))
        return replace(finding, values=self.value(finding.values), subjects=subjects)

    def subject(self, subject: ReportSubject) -> ReportSubject:
        return replace(subject, name=self.text(subject.name))

    def sought(self, sought: Sought) -> Sought:
        """Return data that a test looked at, masked as in the calls that accessed it."""
        # The asterisks of a masked part match only themselves.
        parts = (self.text(part).replace("*", "[*]") for part in sought.pattern.split("*"))
        return Sought(self.subject(sought.subject), self.text(sought.part), "*".join(parts))

    def request(self, served: ServedRequest) -> MaskedRequest:
        """Return a copy of a request to the application."""
        masked = copy.copy(served)
        masked.target, masked.body = self.text(served.target), self.text(served.body)
        masked.raised, masked.environ = self.text(served.raised), None
        masked.headers = tuple(self.headers(served.headers))
        masked.answer = served.answer and self.data(served.answer)
        return MaskedRequest(masked)
