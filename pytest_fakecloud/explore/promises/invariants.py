"""Promises about the data of the fakes and the results of operations at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from ...core.errors import ContractError, shown
from ..run import History
from .checks import Check, count_of, expect


def once(key: str) -> Check:
    """Check that an effect that is recorded under a key happened exactly once.

    The key holds a counter, or a list, set, hash, sorted set or stream with one element for each
    effect. If a client gave up or a message became a dead letter, no effect is also correct; more
    than one never is.
    """
    expect(isinstance(key, str), "once", "the name of a key", key)

    def check(history: History) -> None:
        __tracebackhide__ = True
        servers = [h for h in history.cloud.fakes() if h.fixture == "kv_server"]
        if not servers:
            raise ContractError("once() checks a key, but no key-value server is open")
        times = sum(_effects(key, cast("Any", server).value(key)) for server in servers)
        if times > 1:
            raise AssertionError(f"{key} counts {times} effects instead of one")
        if times == 0 and not _gave_up(history):
            raise AssertionError(f"{key} counts no effect, although no client gave up")

    return check


def _effects(key: str, value: object) -> float:
    count = count_of(value)
    if count is None:
        raise ContractError(
            f"once({key!r}): the key holds {shown(value)}, which is not a count: pass a key that "
            "holds a number or a collection"
        )
    return count


def _gave_up(history: History) -> bool:
    queues = (h for h in history.cloud.fakes() if h.fixture == "queue")
    return bool(
        history.errors
        or history.crashed
        or any(cast("Any", queue).dead_letters() for queue in queues)
    )


def nothing_lost(
    sent: str | Callable[[], Iterable[object]], handled: Callable[[], Iterable[object]]
) -> Check:
    """Check that everything that was sent was handled at least once.

    ``sent`` is a topic of the broker, whose record values are then compared, or a function that
    returns what was sent. ``handled`` is a function that returns what was handled. Equal values
    count as one, because a client may repeat a request: include an ID in each value.
    """
    if not isinstance(sent, str) and not callable(sent):
        raise ContractError(f"sent={shown(sent)} is neither the name of a topic nor a function")
    if not callable(handled):
        raise ContractError(
            f"handled={shown(handled)} is not a function: pass one that returns a list"
        )

    def check(history: History) -> None:
        __tracebackhide__ = True
        came = list(handled())
        lost = [each for each in _sent(history, sent) if each not in came]
        if lost:
            raise AssertionError(f"lost: {', '.join(map(shown, lost))}")

    return check


def _sent(history: History, sent: str | Callable[[], Iterable[object]]) -> list[object]:
    if not isinstance(sent, str):
        return list(sent())
    brokers = [cast("Any", h) for h in history.cloud.fakes() if h.fixture == "broker"]
    known = [broker for broker in brokers if sent in (one.name for one in broker.topics())]
    if not known:
        raise ContractError(f"no broker has the topic {sent!r}: create it, or pass a function")
    return [record.value for broker in known for record in broker.records(sent)]


def monotonic_reads(name: str) -> Check:
    """Check that no client reads a smaller value after a greater one.

    ``name`` is the name of a function marked with ``observed``, whose results can be compared. None
    is less than any other result.
    """
    expect(isinstance(name, str), "monotonic_reads", "the name of an operation", name)

    def check(history: History) -> None:
        __tracebackhide__ = True
        reads = [
            each for each in history.operations if each.name == name and each.ended is not None
        ]
        latest: dict[str, Any] = {}
        for read in sorted(reads, key=lambda each: each.ended or 0):
            before, now = latest.get(read.client), cast("Any", read.result)
            if before is not None and (now is None or now < before):
                raise AssertionError(
                    f"{read.client} read {shown(before)}, and later the smaller {shown(now)}"
                )
            latest[read.client] = now

    return check
