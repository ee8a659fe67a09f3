"""Settings of a key-value server: its dialect, its limits, the keywords of ``KVServer``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..core.errors import ContractError
from ..core.settings import (
    MOST_PORT,
    SWITCH,
    HandleConfig,
    HandleSettings,
    Kind,
    choice,
    duration,
    either,
    optional,
    setting,
    text,
    texts,
    whole,
)
from ..core.timeparse import Duration
from .table.versions import MODULES, as_numbers

Dialect = Literal["vendor", "redis"]
"""The vendor's REST service, or the behaviour of stock Redis."""
IntText = Literal["integer", "int"]
"""The word for integers in errors: that of stock servers, or of the vendor's pages."""
Isolation = Literal["prefix", "database", "none"]
"""A fake's share of a real server."""

MAX_KEY_SIZE: dict[Dialect, int | None] = {"vendor": 32 * 1024, "redis": None}
"""The limit in bytes on a key, whatever the plan."""
VERSION: dict[Dialect, str] = {"vendor": "8.2.0", "redis": "7.0.15"}
"""The version that each dialect reports (vendor: the documentation)."""


_LIMIT = optional(whole(0))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the vendor's plans; None means no limit."""

    max_request_size: int | None = setting(10_000_000, _LIMIT)
    """The largest command in bytes; each command of a pipeline counts separately."""
    daily_limit: int | None = setting(None, _LIMIT)
    """The most commands per UTC day of the clock."""
    max_pipeline_length: int | None = setting(None, _LIMIT)
    """The most commands of one request."""
    max_requests_per_second: int | None = setting(None, _LIMIT)
    """The most commands per second of the clock."""
    max_key_size: int | None = setting(None, _LIMIT)
    """The largest key in bytes."""
    max_record_size: int | None = setting(None, _LIMIT)
    """The largest value in bytes."""
    max_data_size: int | None = setting(None, _LIMIT)
    """The largest database in bytes."""
    max_connections: int | None = setting(None, _LIMIT)
    """The most open connections of the database port and event streams together."""
    max_pending_entries: int | None = setting(1000, _LIMIT)
    """The most pending entries of one consumer of a stream."""
    max_search_indexes: int | None = setting(10, _LIMIT)
    """The most search indexes of one database."""

    @property
    def bounds_requests(self) -> bool:
        """Whether commands must be counted."""
        return (self.daily_limit, self.max_requests_per_second) != (None, None)

    @property
    def bounds_data(self) -> bool:
        """Whether write commands must be measured."""
        return (self.max_key_size, self.max_record_size, self.max_data_size) != (None, None, None)


class KVSettings(HandleSettings, total=False):
    """The keywords of ``Cloud.kv_server()`` and of the marker; ``KVConfig`` explains them."""

    dialect: Dialect
    version: str | None
    modules: Sequence[str]
    max_request_size: int | None
    daily_limit: int | None
    max_pipeline_length: int | None
    max_requests_per_second: int | None
    max_key_size: int | Literal["dialect"] | None
    max_record_size: int | None
    max_data_size: int | None
    max_connections: int | None
    max_pending_entries: int | None
    max_search_indexes: int | None
    search_ready_after: Duration | None
    search_ready_after_reads: int | None
    documented_only: bool
    debug_command: bool
    database_port: int | None
    database_password: str | None
    int_text: IntText
    engine: str | None
    isolation: Isolation


def _is_version(version: str) -> bool:
    # Scripts read the version as a number with one byte per part.
    form = r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}"
    return bool(re.fullmatch(form, version)) and max(as_numbers(version)) <= 255


_KEY_SIZE: Kind[Any] = optional(either(whole(0), choice("dialect")))


@dataclass(frozen=True, kw_only=True)
class KVConfig(Limits, HandleConfig):
    """Settings of a ``KVServer``."""

    dialect: Dialect = setting("vendor", choice(*get_args(Dialect)))
    """``"vendor"`` for the REST service, or ``"redis"`` for a stock server."""
    version: str | None = setting(None, optional(text("a version such as '7.2'", _is_version)))
    """The version that the stock server announces (``"7.2"``), with its commands; by default 7.0.15."""
    modules: Sequence[str] = setting((), texts(*MODULES))
    """The loaded modules of the stock server: ``["ReJSON"]`` for ``JSON.*``; by default none."""
    max_key_size: Any = setting("dialect", _KEY_SIZE)
    """The largest key in bytes; by default 32,768 in the vendor's dialect, else unlimited."""
    search_ready_after_ms: int | None = setting(None, optional(duration("ms")))
    """The time on the clock until a search finds a write."""
    search_ready_after_reads: int | None = setting(None, optional(whole(0)))
    """The number of searches that do not yet find a write."""
    documented_only: bool = setting(False, SWITCH)
    """Reject commands that the vendor's documentation does not name."""
    debug_command: bool = setting(False, SWITCH)
    """Allow ``DEBUG``, like a server's ``enable-debug-command``."""
    database_port: int | None = setting(None, optional(whole(0, MOST_PORT)))
    """The port number of the database port; by default it opens on first use, on a free one."""
    database_password: str | None = setting(None, optional(text("a non-empty string", bool)))
    """The password of the database port; by default a random one."""
    int_text: IntText = setting("integer", choice(*get_args(IntText)))
    """The word in errors about integers; ``"int"`` is that of the vendor's pages."""
    engine: str | None = setting(None, optional(text()))
    """The address of a real server (``"redis://…"``) that runs the commands; by default in memory.
    """
    isolation: Isolation = setting("prefix", choice(*get_args(Isolation)))
    """This fake's share of a real server: a key prefix, a numbered database, or all of it."""

    def __post_init__(self) -> None:
        if self.max_key_size == "dialect":
            object.__setattr__(self, "max_key_size", MAX_KEY_SIZE[self.dialect])
        if self.engine is None:
            if self.isolation != "prefix":
                raise ContractError(
                    f"isolation={self.isolation!r} is a share of a real server: pass engine= too"
                )
        else:
            self._check_beside_engine()
        stock = self.dialect == "redis" and self.engine is None
        if self.version is not None:
            if not stock:
                raise ContractError(
                    f"version={self.version!r} applies only to an in-memory stock server: pass "
                    "dialect='redis' and no engine="
                )
            object.__setattr__(self, "version", _whole_version(self.version))
        if self.modules:
            if not stock:
                raise ContractError(
                    f"modules={self.modules!r} applies only to an in-memory stock server: pass "
                    "dialect='redis' and no engine= (the vendor's dialect always has JSON)"
                )
            known = tuple(name for name in MODULES if name in self.modules)
            object.__setattr__(self, "modules", known)

    def _check_beside_engine(self) -> None:
        """Reject settings that a real server has itself."""
        if self.debug_command:
            raise ContractError(
                "debug_command is a setting of the in-memory engine; a real server has its own, "
                "enable-debug-command: leave out engine="
            )
        if (self.database_port, self.database_password) != (None, None):
            raise ContractError(
                "database_port and database_password are settings of the in-memory engine; a real "
                "server has a port of its own: leave out engine="
            )
        of_data = (self.max_record_size, self.max_data_size, self.max_pending_entries)
        if of_data != (None, None, Limits.max_pending_entries):
            raise ContractError(
                "max_record_size, max_data_size and max_pending_entries are limits of the "
                "in-memory engine, which knows what is stored: leave out engine="
            )


def _whole_version(version: str) -> str:
    """Return the announced version of a stock server: ``"7.2"`` is 7.2.0."""
    own = VERSION["redis"]
    if f"{own}.".startswith(f"{version}."):
        return own
    complete = ".".join([*version.split("."), "0", "0"][:3])
    if as_numbers(complete) < (7, 0):
        raise ContractError(
            f"version={version!r} is older than every version known here: pass '7.0' or later"
        )
    return complete
