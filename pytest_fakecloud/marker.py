"""The settings of a test's cloud: the keywords of the marker, except those named after fakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .core.ids import check_seed
from .core.settings import PROCESS_TIME, SWITCH, TRANSPORT, Kind, choice, optional, setting
from .core.timeparse import Instant, instant_us

_INSTANT = Kind(
    Instant,
    "an aware datetime, or an ISO string with an offset such as '2026-01-01T00:00:00Z'",
    lambda value: value is not None,
    instant_us,
)
_SEED = Kind(int | str, "a whole number or a string", lambda value: value is not None, check_seed)
_STRICT: Kind[Any] = Kind(
    bool | str | Sequence[str],
    "True, False, or names of kinds of problems",
    lambda value: isinstance(value, bool | str | list | tuple | set | frozenset),
)


@dataclass(frozen=True, kw_only=True)
class MarkerConfig:
    """The settings of a test's cloud.

    None means the default: the ini setting of the same name (``fakecloud_clock``), if there is one.
    """

    now: Any = setting(None, optional(_INSTANT))
    """The initial time of the clock; the current time by default."""
    clock: Literal["running", "frozen"] | None = setting(
        None, optional(choice("running", "frozen"))
    )
    """``"running"``: it follows real time. ``"frozen"``: it moves only when a test moves it."""
    seed: Any = setting(None, optional(_SEED))
    """The seed of all ids and random values; the test's node id by default."""
    process_time: bool | Literal["autojump"] = setting(False, PROCESS_TIME)
    """Whether ``time.time()`` and ``datetime.now()`` follow the clock, which is then frozen; with
    ``"autojump"``, sleeping also moves the clock (extra ``time``).
    """
    strict: Any = setting(None, optional(_STRICT))
    """The kinds of strict-mode violations that fail a passing test."""
    env: bool | None = setting(None, optional(SWITCH))
    """Whether to set the environment variables that official clients read."""
    transport: Literal["socket", "inprocess"] | None = setting(None, optional(TRANSPORT))
    """How requests, httpx and urllib3 reach the fakes; ``"inprocess"`` skips the socket."""
    tls: bool = setting(False, SWITCH)
    """Whether the fakes serve HTTPS (extra ``tls``)."""
