"""The endpoint of the language model.

Decided here: a chat request is forwarded immediately, without its credentials, to the handler of the
language model (502 if there is no handler).
"""

from __future__ import annotations

from ...core.timers import finished
from ...http.messages import Answer, Request
from ..engine.engine import Engine
from ..errors import QueueError
from ..model import Delivery, first
from ..wire.headers import LLM_URL
from ..wire.values import HOP_BY_HOP, failure_text
from .routing import QueueRoute


def chat(engine: Engine, request: Request) -> Answer:
    own = {"authorization", *HOP_BY_HOP}
    delivery = Delivery(
        message_id="chat",
        url=LLM_URL,
        method=request.method,
        headers=[pair for pair in request.headers.pairs if pair[0].lower() not in own],
        body=request.body,
        attempt=0,
        timeout_us=engine.data.limits.timeout_us,
    )
    outcome = finished(engine.perform(delivery, False))
    if outcome.status is None:
        raise QueueError(502, f"no language model answers: {failure_text(outcome)}")
    framing = {"content-type", *HOP_BY_HOP}
    headers = [pair for pair in outcome.headers if pair[0].lower() not in framing]
    content_type = first(outcome.headers, "Content-Type")
    return Answer(outcome.body, outcome.status, headers, content_type)


ROUTES = [
    QueueRoute("POST", "/llm/v1/chat/completions", "chat", chat, lingers=True, unlimited=True)
]
