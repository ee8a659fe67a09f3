"""The data that requests to the queue and its deliveries read and write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..cloud.fake import core_of
from ..core.touches import ALL, READS_CLOCK, Touch
from .rest.app import PUBLISHING

if TYPE_CHECKING:
    from ..http.messages import Request
    from .fake import Queue
    from .model import Message


def touches_of_request(fake: Queue, request: Request) -> Sequence[Touch]:
    """Return what a request touches, based on its route."""
    writes = core_of(fake).app.table.writes(request.method, request.path)
    touches = [READS_CLOCK, Touch(fake.name, "publishing", ALL, writes)]
    if request.route not in PUBLISHING:
        touches.append(Touch(fake.name, "message", ALL, writes))
    return touches


def touches_of_delivery(fake: str, name: str, message: Message) -> Iterable[Touch]:
    """Yield what the start or the end of a delivery touches, which others may wait for."""
    yield READS_CLOCK
    yield Touch(fake, "message", name, True)
    if message.queue_name is not None:
        yield Touch(fake, "queue", message.queue_name, True)
    flow = message.settings.flow
    if flow is not None:
        yield Touch(fake, "flow-control key", flow.key, True)
