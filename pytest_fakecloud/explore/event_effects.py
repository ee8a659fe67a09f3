"""The effects of events on calls and on the state of fakes, and their descriptions in a story."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..core.errors import ContractError, ServiceError, shown
from ..core.wording import counted, listed
from ..faults.kinds import lost
from ..http.messages import Answer, Effect, Request, Response, Serve
from .schedule import Event, Kind

if TYPE_CHECKING:
    from ..core.timekeeper import Timekeeper
    from ..core.timers import Timer
    from ..handle import Handle
    from ..vector.handle import VectorIndex
    from .simulation.deliveries import Due

FAULT_WORDS: dict[str, str] = {
    "answer": "is rejected with 503",
    "drop": "is lost before it arrives",
    "lose_answer": "succeeds, but its answer is lost",
    "duplicate": "arrives twice",
}
HOLD_US = 60_000_000
"""Microseconds for which vectors remain pending after a ``hold_pending`` event."""
ROTATED_US = 10_000_000
"""Microseconds for which the code keeps using an old token after a ``rotate_token`` event."""
_Key: TypeAlias = tuple[Kind, str]
"""The kind of event that began a disturbance, and the name of the fake."""


def faulted(kind: str, handle: Handle, session: Any, serve: Serve) -> Response:
    """Return the response to a call with a fault of this kind.

    ``session`` is the one of a command's connection, or None for an HTTP request. ``serve``
    executes the call.
    """
    if kind == "answer":
        return _refusal(handle) if session is None else _loading(session)
    if kind == "drop":
        return Effect("drop")
    if kind == "lose_answer":
        return lost(serve())
    if kind == "duplicate":
        serve()
        return serve()
    raise ValueError(kind)


def _refusal(handle: Handle) -> Answer:
    return handle._fault_table.answers.render(ServiceError(503, "Service Unavailable"))


def _loading(session: Any) -> Answer:
    """Return a server's answer while it loads its data; an open transaction is discarded."""
    text = "LOADING Redis is loading the dataset in memory"
    if session.queue is not None:
        session.discard_transaction()
        text = f"EXECABORT Transaction discarded because of: {text}"
    return Answer(f"-{text}\r\n".encode(), 400, (), "application/x-resp")


def disturb_group(kind: str, broker: Any, group: str | None) -> str:
    """Disturb a consumer group; return a description, or an empty string if it was impossible."""
    if broker.fixture != "broker" or not group or group not in broker.groups():
        return ""
    if kind == "rebalance":
        broker.rebalance(group)
        return f"{group} rebalances"
    try:
        again = broker.redeliver(group)
    except ContractError:
        return ""  # There have been no deliveries yet.
    return f"the last commit of {group} is lost" if again else ""


def lost_records(answer: Response) -> str:
    """Describe the records of the first answer to a consume request that arrives twice."""
    if not isinstance(answer, Answer) or answer.status != 200 or not isinstance(answer.body, bytes):
        return ""
    records = json.loads(answer.body)
    places = [f"{one['topic']}-{one['partition']}@{one['offset']}" for one in records]
    return f", and the first answer with {listed(places)} is lost" if places else ""


def session_of(handle: Any, request: Request) -> Any:
    """Return the session of a command's connection, or None for an HTTP request."""
    if request.call.route != "database-port":
        return None
    return next((c.session for c in list(handle._port._open) if c.client == request.client), None)


def command_of(request: Request) -> str:
    found = request.call.facts.get("command") or [""]
    return str(found[0])


def delivery_words(due: Due, hit: Sequence[Event]) -> str:
    url = due.message.url
    words = f"is delivered to {url if isinstance(url, str) else shown(url)}"
    for event in hit:
        if event.kind == "duplicate":
            words += " twice"
        elif event.kind == "crash_after_answer":
            words += "; the queue loses the answer"
        elif event.kind == "fail":
            more = int(event.detail) - 1
            words += "; the answer is lost"
            if more:
                verb = "fails" if more == 1 else "fail"
                words += f", and {counted(more, 'more attempt')} {verb}"
        elif event.kind == "unreachable":
            many = int(event.detail)
            times = f" {many} times" if many > 1 else ""
            words += f", which is unreachable{times}"
    return words


def seconds(span_us: int) -> str:
    """Return a time span as text."""
    return f"{span_us / 1e6:.6g} s"


class _Disturbance(NamedTuple):
    undo: Callable[[], None]
    timer: Timer


class _Tokens(NamedTuple):
    handle: Handle
    tokens: tuple[str, ...]

    def restore(self) -> None:
        self.handle._set_tokens(*self.tokens)


class Disturbances:
    """The disturbances of a run that have not ended yet.

    A fake has at most one disturbance of each kind. If an event repeats it, the disturbance lasts
    for its whole span from then on.
    """

    def __init__(self, clock: Timekeeper, handles: Iterable[Handle]) -> None:
        self._clock = clock
        self._baseline = [_Tokens(handle, handle._tokens()) for handle in handles]
        self._active: dict[_Key, _Disturbance] = {}
        self._rotated: dict[str, _Tokens] = {}
        """The tokens that the code still uses, by the names of the fakes that rotated them."""

    def hold(self, index: VectorIndex) -> None:
        """Keep changes of a vector index pending for a limited time."""
        index.hold_pending()
        key: _Key = "hold_pending", index.name
        self._start(key, "pending changes become ready", HOLD_US, index.release_pending)

    def rotate(self, handle: Handle) -> None:
        """Rotate a fake's token, and restore the old token after a limited time."""
        old = self._rotated.setdefault(handle.name, _Tokens(handle, handle._tokens()))
        handle.rotate_token()

        def undo() -> None:
            del self._rotated[handle.name]
            old.restore()

        key: _Key = "rotate_token", handle.name
        self._start(key, "the new token is known", ROTATED_US, undo)

    def is_rotated(self, handle: Handle) -> bool:
        """Return whether the code still uses a fake's token from before a rotation."""
        return handle.name in self._rotated

    @contextlib.contextmanager
    def old_tokens(self) -> Iterator[None]:
        """Make the fakes accept the tokens from before their rotation within the block."""
        new = [_Tokens(old.handle, old.handle._tokens()) for old in self._rotated.values()]
        for old in self._rotated.values():
            old.restore()
        try:
            yield
        finally:
            for tokens in new:
                tokens.restore()

    def _start(self, key: _Key, effect: str, span_us: int, undo: Callable[[], None]) -> None:
        if key in self._active:
            self._active.pop(key).timer.cancel()
        due_us = self._clock.now_us() + span_us
        label = f"{key[1]}: {effect}"
        timer = self._clock.call_at(due_us, lambda _: self._end(key), label=label)
        self._active[key] = _Disturbance(undo, timer)

    def _end(self, key: _Key) -> None:
        disturbance = self._active.pop(key)
        disturbance.timer.cancel()
        disturbance.undo()

    def end(self) -> None:
        """End all disturbances, so that the promise can be checked."""
        for key in list(self._active):
            self._end(key)

    def reset(self) -> None:
        """Forget all disturbances and restore the credentials of the baseline."""
        for disturbance in self._active.values():
            disturbance.timer.cancel()
        self._active.clear()
        self._rotated.clear()
        for tokens in self._baseline:
            tokens.restore()
