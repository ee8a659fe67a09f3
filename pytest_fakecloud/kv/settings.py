"""Settings of a key-value server: its dialect, its limits, and the keywords of ``KVServer``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

from ..core.errors import ContractError
from ..core.hosts import is_loopback
from ..core.settings import (
    MOST_PORT,
    SWITCH,
    FakeConfig,
    Kind,
    changed_settings,
    check_engine,
    choice,
    duration,
    either,
    first_of,
    optional,
    setting,
    text,
    texts,
    whole,
)
from .table.versions import MODULES, as_numbers

Dialect = Literal["vendor", "redis"]
"""The server to imitate: the vendor's REST service, or stock Redis."""
IntText = Literal["integer", "int"]
"""The word for integers in errors: ``integer`` on servers, ``int`` in the vendor's documentation."""
Isolation = Literal["prefix", "database", "none"]
"""The part of a real server that a fake uses: a key prefix, a numbered database, or everything."""

MOST_SHARDS = 100
"""Maximum number of primaries of a cluster (decided here)."""
VERSION: dict[Dialect, str] = {"vendor": "8.2.0", "redis": "7.0.15"}
"""Default version that a server reports, by dialect; the vendor's is from its documentation."""

_PORTS: Kind[tuple[int, ...]] = Kind(
    Sequence[int],
    f"a list of whole numbers from 0 to {MOST_PORT}",
    lambda value: (
        isinstance(value, list | tuple) and all(whole(0, MOST_PORT).fits(port) for port in value)
    ),
    tuple,
)
_LIMIT = optional(whole(0))
"""A limit; None means no limit."""


def _is_version(version: str) -> bool:
    # Each part must fit into a byte, because scripts read the version as a number of such bytes.
    form = r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}"
    return bool(re.fullmatch(form, version)) and max(as_numbers(version)) <= 255


_BY_DIALECT: Kind[Any] = optional(either(whole(0), choice("dialect")))


_OF_VENDOR = {
    "max_request_size": 10 * 1024 * 1024,
    "max_matching_keys": 10_000,
    "max_key_size": 32 * 1024,
}
"""The vendor's limits. The number of matching keys is decided here: about 17,000 were rejected."""


class KVConfig(FakeConfig):
    """The settings of a ``KVServer``."""

    dialect: Dialect = first_of(*get_args(Dialect), engines="both")
    """The server to imitate: ``"vendor"`` for the REST service, or ``"redis"`` for a stock server."""
    version: str | None = setting(None, optional(text("a version such as '7.2'", _is_version)))
    """The version of a stock server (``"7.2"``), which determines its commands; by default 7.0.15."""
    modules: Sequence[str] = setting((), texts(*MODULES))
    """The modules that a stock server has loaded: ``["ReJSON"]`` for ``JSON.*``; by default none."""
    search_ready_after_ms: int | None = setting(None, optional(duration("ms")))
    """Fake time until a change becomes searchable."""
    search_ready_after_reads: int | None = setting(None, optional(whole(0)))
    """Number of searches before a change becomes searchable."""
    documented_only: bool = setting(False, SWITCH, engines="both")
    """Reject commands that the vendor's documentation does not list."""
    debug_command: bool = setting(False, SWITCH)
    """Allow ``DEBUG``, like the option ``enable-debug-command`` of a server."""
    database_port: int | None = setting(None, optional(whole(0, MOST_PORT)), connects=True)
    """Number of the database port; by default, any free port."""
    database_password: str | None = setting(None, optional(text()), connects=True)
    """Password of the database port; by default a random one. With ``dialect="redis"`` on a loopback
    address, ``""`` starts a server without a password, as a stock server starts.
    """
    int_text: IntText = first_of(*get_args(IntText), engines="both")
    """The word for integers in error messages; the vendor's documentation writes ``"int"``."""
    cluster: bool | int = setting(False, either(SWITCH, whole(1, MOST_SHARDS)))
    """Start a cluster: ``True`` for one node with all slots, or a number of primaries that share the
    slots, each with a replica. Only with ``dialect="redis"``.
    """
    node_ports: Sequence[int] = setting((), _PORTS, connects=True)
    """Numbers of the ports of the other nodes: first the primaries of a cluster, then the replicas; by
    default, any free ports.
    """
    sentinel: bool | str = setting(False, either(SWITCH, text("a name", bool)))
    """Start a primary, a replica and a sentinel that watches them under a name, ``"mymaster"`` for
    ``True``. Only with ``dialect="redis"``.
    """
    sentinel_port: int | None = setting(None, optional(whole(0, MOST_PORT)), connects=True)
    """Number of the sentinel's port; by default, any free port."""
    engine: str | None = setting(None, optional(text()), engines="both")
    """URL of a real server (``"redis://…"``) that runs the commands; by default they run in memory."""
    isolation: Isolation = first_of(*get_args(Isolation), engines="real")
    """The part of a real server for the fake: a key prefix, a numbered database, or everything."""
    max_request_size: Any = setting("dialect", _BY_DIALECT, engines="both")
    """Maximum size of a command, and of the replies to a request, in bytes; each command of a pipeline
    counts separately. By default 10,485,760, with ``dialect="redis"`` unlimited.
    """
    max_matching_keys: Any = setting("dialect", _BY_DIALECT)
    """Maximum number of keys that ``KEYS`` returns to a client; by default 10,000, with
    ``dialect="redis"`` unlimited.
    """
    daily_limit: int | None = setting(None, _LIMIT, engines="both")
    """Maximum number of commands per UTC day of the fake's clock."""
    max_pipeline_length: int | None = setting(None, _LIMIT, engines="both")
    """Maximum number of commands in one request."""
    max_requests_per_second: int | None = setting(None, _LIMIT, engines="both")
    """Maximum number of commands per second of the fake's clock."""
    max_key_size: Any = setting("dialect", _BY_DIALECT, engines="both")
    """Maximum length of a key in bytes; by default 32,768, with ``dialect="redis"`` unlimited."""
    max_record_size: int | None = setting(None, _LIMIT)
    """Maximum size of a value in bytes."""
    max_data_size: int | None = setting(None, _LIMIT)
    """Maximum size of a database in bytes."""
    max_connections: int | None = setting(None, _LIMIT, engines="both")
    """Maximum number of open connections to the database port and event streams together."""
    max_pending_entries: int | None = setting(1000, _LIMIT)
    """Maximum number of pending entries of one stream consumer."""
    max_search_indexes: int | None = setting(10, _LIMIT)
    """Maximum number of search indexes in one database."""

    def __post_init__(self) -> None:
        check_engine(self, self.engine)
        stock = self.dialect == "redis"
        for name, limit in _OF_VENDOR.items():
            if getattr(self, name) == "dialect":
                setattr(self, name, None if stock else limit)
        if stock:
            for name in changed_settings(self):
                if name in ("search_ready_after", "search_ready_after_reads", "max_search_indexes"):
                    raise ContractError(
                        f"{name} applies only to SEARCH commands, which a stock server lacks: leave it "
                        "out, or pass dialect='vendor'"
                    )
        if self.database_password == "":
            if not stock:
                raise ContractError(
                    "database_password='' (no password) applies only to a stock server: pass "
                    "dialect='redis', or a password"
                )
            if self.host is not None and not is_loopback(self.host):
                raise ContractError(
                    f"a server without a password would be reachable from other machines at "
                    f"{self.host}: pass a database_password, or leave host out"
                )
        self._check_nodes(stock)
        if self.version is not None:
            if not stock:
                raise ContractError(
                    f"version={self.version!r} applies only to a stock server: pass dialect='redis'"
                )
            self.version = _whole_version(self.version)
        if self.modules:
            if not stock:
                raise ContractError(
                    f"modules={self.modules!r} applies only to a stock server: pass dialect='redis' "
                    "(the vendor's dialect always has JSON)"
                )
            self.modules = tuple(name for name in MODULES if name in self.modules)

    def _check_nodes(self, stock: bool) -> None:
        """Raise ``ContractError`` for nodes that contradict other settings."""
        if self.cluster and not stock:
            raise ContractError(
                f"cluster={self.cluster!r} applies only to a stock server: pass dialect='redis'"
            )
        if self.sentinel and not stock:
            raise ContractError(
                f"sentinel={self.sentinel!r} applies only to a stock server: pass dialect='redis'"
            )
        if self.sentinel and self.cluster:
            raise ContractError(
                "sentinels do not watch clusters, which replace their primaries themselves: leave out "
                "sentinel= or cluster="
            )
        if self.sentinel_port is not None and not self.sentinel:
            raise ContractError(
                f"sentinel_port={self.sentinel_port} applies only to sentinels: pass sentinel=True"
            )
        if len(self.node_ports) > self.other_nodes:
            raise ContractError(
                f"node_ports={list(self.node_ports)} has more ports than there are other nodes, "
                f"which are {self.other_nodes}: leave some out, or pass cluster= or sentinel=True"
            )

    @property
    def replicas(self) -> int:
        """The number of replicas of each primary: none for a single node with all slots."""
        return int(self.cluster > 1 or bool(self.sentinel))

    @property
    def other_nodes(self) -> int:
        """The number of nodes besides the one at ``database_port``."""
        primaries = max(int(self.cluster), 1)
        return primaries * (1 + self.replicas) - 1


def _whole_version(version: str) -> str:
    """Return a version with three parts, e.g. 7.2.0; raise ``ContractError`` for one before 7.0."""
    own = VERSION["redis"]
    if f"{own}.".startswith(f"{version}."):
        return own
    complete = ".".join([*version.split("."), "0", "0"][:3])
    if as_numbers(complete) < (7, 0):
        raise ContractError(f"version={version!r} is too old: pass '7.0' or later")
    return complete
