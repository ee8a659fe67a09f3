"""Makes the responses that faults send, in the format of the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import ContractError, ServiceError, shown
from ..http.encoding import phrase
from ..http.messages import JSON_TYPE, Answer, Effect, HeaderPairs, Response, Serve
from .answers import checked_answer, checked_body, checked_headers, checked_status, checked_type
from .kinds import lost, truncated

if TYPE_CHECKING:
    from ..http.app import App

Step = int | None | tuple[int, Any] | Answer | Literal["drop", "hang", "lose_answer", "truncate"]
"""One step of a sequence: a status, None for a normal response, ``(status, body)``, or a fault's
name.
"""


class AnswerMaker:
    """Checks the responses that a test defines, and encodes them as the service does.

    ``app`` is the service's app; without one, bodies can only be bytes or strings.
    """

    def __init__(self) -> None:
        self.app: App | None = None

    @property
    def dump(self) -> Callable[[object], bytes] | None:
        """The service's JSON encoder, for bodies given as objects."""
        return None if self.app is None else self.app.dump

    def render(self, error: ServiceError) -> Answer:
        """Return an error in the service's format, for faults with a status but no body."""
        if self.app is None:
            return Answer(f"{error.message}\n".encode(), error.status, error.headers, "text/plain")
        return self.app.render_error(error)

    def maker(
        self,
        status: int,
        body: object,
        headers: HeaderPairs | Mapping[str, str],
        content_type: str | None,
    ) -> Callable[[], Answer]:
        """Return a function that makes a response from the test's values.

        Raises ``ContractError`` if the values are invalid.
        """
        checked_status(status)
        listed = checked_headers(headers)
        for name, value in listed:
            if name.lower() == "content-type":
                content_type = value
        listed = tuple(pair for pair in listed if pair[0].lower() != "content-type")
        kind = checked_type(content_type)
        raw = None if body is None else checked_body(body, self.dump)
        usual = "text/plain; charset=utf-8" if isinstance(body, bytes | str) else JSON_TYPE

        def make() -> Answer:
            if raw is not None:
                return Answer(raw, status, listed, kind or usual)
            answer = self.render(ServiceError(status, phrase(status), headers=listed))
            if kind is not None:
                answer.content_type = kind
            return self.encoded(answer)

        return make

    def encoded(self, answer: Answer) -> Answer:
        """Encode the body of the test's response; raise ``ContractError`` if the response is
        invalid.
        """
        return checked_answer(answer, self.dump)

    def step(self, step: Step) -> Callable[[Serve], Response]:
        """Return a function that applies one step of a sequence; raise ``ContractError`` if it is
        invalid.
        """
        if step is None:
            return lambda serve: serve()
        if isinstance(step, str) and step in _NAMED_STEPS:
            return _NAMED_STEPS[step]
        if isinstance(step, Answer):
            ready = self.encoded(step)
            return lambda serve: replace(ready)
        if isinstance(step, tuple) and len(step) == 2:
            make = self.maker(step[0], step[1], (), None)
        elif isinstance(step, int):
            make = self.maker(step, None, (), None)
        else:
            raise ContractError(
                f"{shown(step)} is not a step: pass a status, None, (status, body), an Answer, "
                "or one of 'drop', 'hang', 'lose_answer', 'truncate'"
            )
        return lambda serve: make()


_NAMED_STEPS: Mapping[str, Callable[[Serve], Response]] = {
    "drop": lambda serve: Effect("drop"),
    "hang": lambda serve: Effect("hang"),
    "lose_answer": lambda serve: lost(serve()),
    "truncate": lambda serve: truncated(serve()),
}
