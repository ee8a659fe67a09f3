"""Endpoints for flow control: its keys and the parallelism of all messages."""

from __future__ import annotations

from ...http.messages import Request
from ..errors import bad_request
from ..model import SECOND
from ..wire.values import LONGEST_PERIOD_US, read_flag, read_integer
from .family import QueueRoute, RouteFamily
from .requests import query_of


class FlowControlRoutes(RouteFamily):
    """Endpoints that show, pause, pin and reset flow-control keys."""

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        return [
            cls.route("GET", "/v2/flowControl", "list_flow_controls", cls.list_flow_controls),
            cls.route("GET", "/v2/flowControl/{key}", "get_flow_control", cls.get_flow_control),
            cls.route("POST", "/v2/flowControl/{key}/pause", "pause_flow", cls.set_paused),
            cls.route("POST", "/v2/flowControl/{key}/resume", "resume_flow", cls.set_paused),
            cls.route("POST", "/v2/flowControl/{key}/pin", "pin_flow", cls.pin),
            cls.route("POST", "/v2/flowControl/{key}/unpin", "unpin_flow", cls.unpin),
            cls.route("POST", "/v2/flowControl/{key}/resetRate", "reset_rate", cls.reset_rate),
            cls.route("POST", "/v2/flowControl/{key}/reset", "reset_flow", cls.reset),
            cls.route("GET", "/v2/globalParallelism", "global_parallelism", cls.global_parallelism),
        ]

    def list_flow_controls(self, request: Request) -> object:
        text = request.query("search") or ""
        keys = self.engine.flow_keys
        return [self.engine.flow_record(key) for name, key in keys.items() if text in name]

    def get_flow_control(self, request: Request) -> object:
        return self.engine.flow_record(self.engine.existing_flow_key(request.segment("key")))

    def set_paused(self, request: Request) -> None:
        self.engine.set_flow_paused(request.segment("key"), request.route == "pause_flow")

    def pin(self, request: Request) -> None:
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
        self.engine.pin_flow(
            request.segment("key"),
            parallelism=parallelism,
            rate=rate,
            period_us=(period or 1) * SECOND,
        )

    def unpin(self, request: Request) -> None:
        flags = {"parallelism": False, "rate": False}
        for name, value in query_of(request):
            if name not in flags:
                raise bad_request(f"unknown setting {name!r}, expected {', '.join(flags)}")
            flags[name] = read_flag(value, name)
        self.engine.unpin_flow(request.segment("key"), **flags)

    def reset(self, request: Request) -> None:
        self.engine.reset_flow(request.segment("key"))

    def reset_rate(self, request: Request) -> None:
        self.engine.reset_flow_rate(request.segment("key"))

    def global_parallelism(self, request: Request) -> object:
        return {
            "parallelismMax": self.engine.limits.parallelism or 0,
            "parallelismCount": len(self.engine.active),
        }
