"""The settings of a cloud."""

from __future__ import annotations

from typing import Literal

from ..core.clock import STANDS, Mode
from ..core.errors import ContractError
from ..core.ids import check_seed
from ..core.settings import (
    DELIVERY,
    SWITCH,
    DeliveryMode,
    Kind,
    Settings,
    choice,
    either,
    optional,
    setting,
)
from ..core.timers import Instant, instant_us

Transport = Literal["socket", "inprocess"]


def _checked_instant(now: Instant) -> Instant:
    instant_us(now)
    return now


def _checked_seed(seed: int | str) -> int | str:
    check_seed(seed)
    return seed


_INSTANT: Kind[Instant] = Kind(
    Instant,
    "an aware datetime, or an ISO string with an offset such as '2026-01-01T00:00:00Z'",
    lambda value: value is not None,
    _checked_instant,
)
_SEED: Kind[int | str] = Kind(
    int | str,
    "a whole number or a string",
    lambda value: isinstance(value, int | str) and not isinstance(value, bool),
    _checked_seed,
)


class CloudConfig(Settings):
    """The settings of a cloud: the keyword arguments of ``Cloud``. They are also settings of a
    test (``pytest_run.options``), except ``delivery`` and ``share_tls_context``.
    """

    now: Instant | None = setting(None, optional(_INSTANT))
    """The initial time of the clock; the current time by default."""
    clock: Mode | None = setting(None, optional(choice("running", "frozen")))
    """``"running"``: it follows real time. ``"frozen"``: it moves only when a test moves it."""
    seed: int | str | None = setting(None, optional(_SEED))
    """The seed of all ids and random values; in a test, its node id by default."""
    process_time: bool | Literal["autojump"] = setting(False, either(SWITCH, choice("autojump")))
    """Whether ``time.time()`` and ``datetime.now()`` follow the clock, which is then frozen; with
    ``"autojump"``, sleeping also moves the clock (extra ``time``).
    """
    transport: Transport = setting("socket", choice("socket", "inprocess"))
    """How requests, httpx, httpx2 and urllib3 reach the fakes; ``"inprocess"`` skips the socket."""
    tls: bool = setting(False, SWITCH)
    """Whether the fakes serve HTTPS (extra ``tls``)."""
    delivery: DeliveryMode = setting("background", DELIVERY)
    """How the queues' messages are delivered: by a thread, or only when the test runs the queue."""
    share_tls_context: bool = setting(True, SWITCH)
    """Whether the clients of httpx, and those of httpx2, share one TLS context."""

    def __post_init__(self) -> None:
        if self.process_time and self.clock == "running":
            raise ContractError(f"clock='running' is not possible: {STANDS}")
