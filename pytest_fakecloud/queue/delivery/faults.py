"""Injected faults of a queue's deliveries and signatures.

They supplement the common faults (``respond``, ``drop``, … for requests to the queue). ``when=``
receives a ``DeliverySubject``. ``url=``, ``label=``, ``kind=``, ``queue=``, ``topic=`` and
``message_id=`` are compared with the delivery. As in assertions, a condition is a string (``*``
matches any text), a regular expression or a predicate.

Decided here: ``crash_after_response`` happens once unless ``times=`` is given, the other faults until
they are removed. An overtaken message is due again after the next delivery, or a second later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

from ...core.field_types import MESSAGE_ID, URL, OneOf
from ...core.matching import Field, Question
from ...core.settings import whole
from ...faults.fault import Fault, ServiceFault, terms_of
from ...faults.plan import injector_of
from ...http.messages import Answer, Proceed
from ..errors import rate_limited
from ..model import KINDS, Delivery, FaultDecisions, Message, MessageKind
from ..rest.app import PUBLISHING_OR_SCHEDULING, QueueApp
from ..views import LABEL, NAME
from ..wire.values import as_text

if TYPE_CHECKING:
    from ..._typing.queue import QueueFaultPlan as FaultPlan
    from ..._typing.queue import QueueMatchers, QueueServiceMatchers
else:
    from ...faults.plan import FaultPlan

DELIVERY_KINDS = (
    "duplicate",
    "tamper",
    "crash_after_response",
    "wrong_key",
    "next_key",
    "expired",
    "unsigned",
)
"""Faults that change a delivery, in the order in which they are chosen when an attempt begins.
``signatures.Signer`` applies them, and the engine ``crash_after_response``.
"""


class DeliverySubject:
    """The delivery that a fault's ``when=`` function receives."""

    def __init__(
        self,
        message: Message,
        *,
        url: str,
        method: str,
        body: bytes,
        kind: MessageKind | None = None,
    ) -> None:
        self.message_id = message.public_id
        self.url = as_text(url)
        self.method = method
        self.body = body
        self.attempt = message.retried
        self.kind: MessageKind = kind or message.kind
        self.labels = message.settings.labels
        self.queue = message.queue_name
        facts = {
            "url": self.url,
            "label": list(self.labels),
            "kind": self.kind,
            "queue": self.queue,
            "topic": message.topic_name,
            "message_id": self.message_id,
        }
        # What an injector reads and writes of a call (``Injector.claim``).
        self.call = SimpleNamespace(facts=facts, cut={}, faults=())


DELIVERY_FACTS: Mapping[str, Field] = {
    "topic": Field(NAME),
    "url": Field(URL),
    "label": Field(LABEL, several=True),
    "kind": Field(OneOf("kind", KINDS)),
    "queue": Field(NAME),
    "message_id": Field(MESSAGE_ID),
}
"""Fields of deliveries that faults of deliveries can match."""


class DeliveryFaults(FaultDecisions):
    """Decides which injected faults of a queue happen to its deliveries."""

    def __init__(self, plan: FaultPlan) -> None:
        self._injector = injector_of(plan)

    @property
    def active(self) -> bool:
        return bool(self._injector.active)

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        subject = DeliverySubject(
            message, url=delivery.url, method=delivery.method, body=delivery.body
        )
        return tuple(
            kind for kind in DELIVERY_KINDS if self._injector.claim(kind, subject) is not None
        )

    def callback(self, message: Message, kind: MessageKind, url: str) -> bool:
        subject = DeliverySubject(message, url=url, method="POST", body=b"", kind=kind)
        if self._injector.claim("drop_callback", subject) is None:
            return False
        message.lost_callbacks += (f"the fault drop_callback lost it on its way to {subject.url}",)
        return True

    def overtaken(self, message: Message) -> bool:
        subject = DeliverySubject(
            message, url=message.url, method=message.settings.method, body=message.body
        )
        return self._injector.claim("reorder", subject) is not None


class QueueFaults(FaultPlan):
    """The fault plan of a queue, with the common faults and the faults of deliveries."""

    _service_fields = DELIVERY_FACTS

    def duplicate(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Send each matching delivery twice, with the same message id and attempt number."""
        return self._delivery("duplicate", matchers)

    def reorder(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Let other messages that are due at the same time overtake a matching message.

        This also happens in an ordered queue.
        """
        return self._delivery("reorder", matchers)

    def tamper(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Change the body of matching deliveries after signing it."""
        return self._delivery("tamper", matchers)

    def crash_after_response(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Lose the destination's response, so that the same message is delivered again immediately."""
        return self._delivery("crash_after_response", {"times": 1, **matchers})

    def drop_callback(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Drop matching callbacks and failure callbacks before they are published.

        ``url=`` is the URL of the callback, ``kind=`` is ``"callback"`` or ``"failure_callback"``.
        """
        return self._delivery("drop_callback", matchers)

    def wrong_key(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Sign matching deliveries with an unknown key."""
        return self._delivery("wrong_key", matchers)

    def next_key(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Sign matching deliveries with the next key, as after a rotation."""
        return self._delivery("next_key", matchers)

    def expired_token(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Sign matching deliveries with a token issued an hour ago, which has expired."""
        return self._delivery("expired", matchers)

    def unsigned(self, **matchers: Unpack[QueueServiceMatchers]) -> Fault:
        """Send matching deliveries without a signature."""
        return self._delivery("unsigned", matchers)

    def burst_limit(self, limit: int, **matchers: Unpack[QueueMatchers]) -> Fault:
        """Reject requests with the 429 response and the headers of the burst limit.

        The vendor limits all requests except those that publish, trigger, notify or wait; pass e.g.
        ``route="publish"`` to reject those.
        """
        return self._refusal("burst", limit, matchers)

    def daily_limit(self, limit: int, **matchers: Unpack[QueueMatchers]) -> Fault:
        """Reject publish requests with the 429 response and the headers of the daily limit."""
        return self._refusal("daily", limit, matchers)

    def _delivery(self, kind: str, matchers: Mapping[str, Any]) -> Fault:
        fault = ServiceFault(self._injector, kind, kind, matchers)
        wanted = terms_of(fault).where.get("kind")
        if kind == "drop_callback" and isinstance(wanted, str):
            # Reject other kinds, because the fault would never apply to them.
            Question("kind", wanted, OneOf("kind", ("callback", "failure_callback")))
        return self._add(fault)

    def _refusal(self, kind: str, limit: int, matchers: Mapping[str, Any]) -> Fault:
        whole(0).read("limit", limit)
        if matchers.get("route") is None:
            names = PUBLISHING_OR_SCHEDULING
            if kind == "burst":
                names = frozenset(
                    route.name for route in QueueApp.routes() if route.counts_for_burst
                )
            matchers = {**matchers, "route": re.compile(rf"\A(?:{'|'.join(sorted(names))})\Z")}

        def respond(proceed: Proceed) -> Answer:
            # Build the response for each request, because its headers depend on the current time.
            return self._injector.answers.render(
                rate_limited(kind, limit, self._injector.clock.now_us())
            )

        return self._inject("respond", f"{kind}_limit {limit}", matchers, respond)
