"""What a key-value server can be told: its dialect, its limits, the keywords of ``KVServer``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from ..core.timeparse import Duration

__all__ = [
    "DIALECTS",
    "MAX_KEY_SIZE",
    "VERSION",
    "Dialect",
    "IntText",
    "Isolation",
    "KVSettings",
    "Limits",
]

Dialect = Literal["vendor", "redis"]
"""The REST service, or stock behaviour for comparisons."""
DIALECTS: tuple[Dialect, ...] = ("vendor", "redis")
IntText = Literal["integer", "int"]
"""The word in the error about values that are not integers: of stock servers, of the vendor's pages."""
Isolation = Literal["prefix", "database", "none"]
"""A handle's share of a real server."""

MAX_KEY_SIZE: dict[Dialect, int | None] = {"vendor": 32 * 1024, "redis": None}
"""The bytes a key may have whatever the plan."""
VERSION: dict[Dialect, str] = {"vendor": "8.2.0", "redis": "7.0.15"}
"""The version each dialect reports of itself (vendor: the documentation)."""


@dataclass(frozen=True)
class Limits:
    """What a plan of the vendor's bounds; None means no bound.

    ``max_request_size`` in bytes (one command of a pipeline counts by itself), ``daily_limit`` in
    commands per UTC day and ``max_requests_per_second`` in commands per second on the clock,
    ``max_pipeline_length`` in commands of one request, ``max_connections`` in connections of the
    database port and event streams together, ``max_pending_entries`` of one consumer of a stream,
    ``max_search_indexes`` of one database.
    In bytes: ``max_key_size``, ``max_record_size`` of one value, ``max_data_size`` of the database.
    """

    max_request_size: int | None = 10_000_000
    daily_limit: int | None = None
    max_pipeline_length: int | None = None
    max_requests_per_second: int | None = None
    max_key_size: int | None = None
    max_record_size: int | None = None
    max_data_size: int | None = None
    max_connections: int | None = None
    max_pending_entries: int | None = 1000
    max_search_indexes: int | None = 10

    @property
    def bounds_requests(self) -> bool:
        """Whether commands have to be counted."""
        return (self.daily_limit, self.max_requests_per_second) != (None, None)

    @property
    def bounds_data(self) -> bool:
        """Whether commands that write have to be measured."""
        return (self.max_key_size, self.max_record_size, self.max_data_size) != (None, None, None)


class KVSettings(TypedDict, total=False):
    """The keywords of ``KVServer``, which are told there."""

    name: str | None
    """What reports and the control API call it; the fixture's name unless given."""
    dialect: Dialect
    """``"vendor"``, the REST service, or ``"redis"``, a stock server to compare with."""
    version: str | None
    """What the stock server announces (``"7.2"``); it knows what came up to it. 7.0.15 unless given."""
    modules: Sequence[str]
    """Modules that the stock server has loaded: ``["ReJSON"]`` for ``JSON.*``; none unless given."""
    max_request_size: int | None
    """Most bytes of one command; each command of a pipeline counts by itself."""
    daily_limit: int | None
    """Most commands of a UTC day of the clock."""
    max_pipeline_length: int | None
    """Most commands of one request."""
    max_requests_per_second: int | None
    """Most commands of a second of the clock."""
    max_key_size: int | Literal["dialect"] | None
    """Most bytes of a key; the dialect's own is 32,768 in the vendor's, none in the stock one."""
    max_record_size: int | None
    """Most bytes of one value."""
    max_data_size: int | None
    """Most bytes of the whole database."""
    max_connections: int | None
    """Most connections of the database port and event streams together."""
    max_pending_entries: int | None
    """Most pending entries of one consumer of a stream."""
    max_search_indexes: int | None
    """Most search indexes of one database."""
    search_ready_after: Duration | None
    """How long a write takes on the clock until a search finds it."""
    search_ready_after_reads: int | None
    """How many searches do not find a write yet."""
    documented_only: bool
    """Refuse the commands that the vendor's own documentation does not name."""
    debug_command: bool
    """Allow ``DEBUG``, as a server's ``enable-debug-command`` does."""
    database_port: int | None
    """Where the database port listens, from the start; else anywhere, once it is asked for."""
    database_password: str | None
    """The password of the database port; a random one unless given."""
    int_text: IntText
    """The word in errors about integers: of stock servers, or ``"int"`` of the vendor's pages."""
    engine: str | None
    """The address of a real server (``"redis://…"``) that runs the commands; None: in memory."""
    isolation: Isolation
    """This handle's share of a real server: a key prefix, a numbered database, or all of it."""
