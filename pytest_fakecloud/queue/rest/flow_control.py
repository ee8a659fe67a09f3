"""Endpoints for flow control: its keys and the parallelism of all messages."""

from __future__ import annotations

from ...http.messages import Request
from ..engine.engine import Engine
from ..errors import bad_request
from ..model import SECOND
from ..wire import records
from ..wire.values import LONGEST_PERIOD_US, read_flag, read_integer
from .requests import query_of
from .routing import QueueRoute


def list_flow_controls(engine: Engine, request: Request) -> object:
    text = request.query("search") or ""
    keys = engine.flow_control.by_name
    return [records.flow_record(engine, key) for name, key in keys.items() if text in name]


def get_flow_control(engine: Engine, request: Request) -> object:
    return records.flow_record(engine, engine.flow_control.get(request.segment("key")))


def pause_flow(engine: Engine, request: Request) -> None:
    engine.flow_control.set_paused(request.segment("key"), True)


def resume_flow(engine: Engine, request: Request) -> None:
    engine.flow_control.set_paused(request.segment("key"), False)


def pin_flow(engine: Engine, request: Request) -> None:
    numbers: dict[str, int | None] = {"parallelism": None, "rate": None, "period": None}
    for name, value in query_of(request):
        if name not in numbers:
            raise bad_request(f"unknown setting {name!r}, expected {', '.join(numbers)}")
        numbers[name] = read_integer(value, name, least=1)
    parallelism, rate, period = numbers.values()
    if period is not None and period * SECOND > LONGEST_PERIOD_US:
        raise bad_request("invalid period: it must be from 1 to 604800 seconds")
    if parallelism is None and rate is None:
        raise bad_request("invalid pin: pass parallelism, rate, or both")
    if period is not None and rate is None:
        raise bad_request("invalid pin: a period needs a rate")
    engine.flow_control.pin(
        request.segment("key"), parallelism=parallelism, rate=rate, period_us=(period or 1) * SECOND
    )


def unpin_flow(engine: Engine, request: Request) -> None:
    flags = {"parallelism": False, "rate": False}
    for name, value in query_of(request):
        if name not in flags:
            raise bad_request(f"unknown setting {name!r}, expected {', '.join(flags)}")
        flags[name] = read_flag(value, name)
    engine.flow_control.unpin(request.segment("key"), **flags)


def reset_flow(engine: Engine, request: Request) -> None:
    engine.flow_control.reset(request.segment("key"))


def reset_rate(engine: Engine, request: Request) -> None:
    engine.flow_control.reset_rate(request.segment("key"))


def global_parallelism(engine: Engine, request: Request) -> object:
    return {
        "parallelismMax": engine.data.limits.parallelism or 0,
        "parallelismCount": len(engine.flow_control.slots),
    }


ROUTES = [
    QueueRoute("GET", "/v2/flowControl", "list_flow_controls", list_flow_controls),
    QueueRoute("GET", "/v2/flowControl/{key}", "get_flow_control", get_flow_control),
    QueueRoute("POST", "/v2/flowControl/{key}/pause", "pause_flow", pause_flow),
    QueueRoute("POST", "/v2/flowControl/{key}/resume", "resume_flow", resume_flow),
    QueueRoute("POST", "/v2/flowControl/{key}/pin", "pin_flow", pin_flow),
    QueueRoute("POST", "/v2/flowControl/{key}/unpin", "unpin_flow", unpin_flow),
    QueueRoute("POST", "/v2/flowControl/{key}/resetRate", "reset_rate", reset_rate),
    QueueRoute("POST", "/v2/flowControl/{key}/reset", "reset_flow", reset_flow),
    QueueRoute("GET", "/v2/globalParallelism", "global_parallelism", global_parallelism),
]
