"""Opens connections to real servers, given their URLs."""

from __future__ import annotations

import re
from inspect import signature
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, ConnectionPool, parse_url
from redis.retry import Retry

from ...core.errors import ContractError
from .cluster import ClusterLink
from .connection import CONNECT_TIMEOUT, REPLY_TIMEOUT, Link, Place, RawParser, SentinelLink

_REDIS_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "redis+cluster": "redis",
    "redis+sentinel": "redis",
    "valkey": "redis",
    "valkeys": "rediss",
}
"""For each supported scheme, the scheme with which redis-py connects."""
_NAMELESS = (
    {"driver_info": None}
    if "driver_info" in signature(AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
"""Options that keep redis-py from sending its name and version on each connection."""
_MAX_CONNECTIONS = 100_000
"""Size of a pool: so large that the pool never limits a fake's requests (decided here)."""


class _Target(NamedTuple):
    """The parts of a URL. ``first_url`` is a URL of redis-py for the first of the nodes."""

    first_url: str
    hosts: list[str]
    clustered: bool
    primary: str | None
    """The name of the primary that Sentinel finds; None without Sentinel."""


def open_link(url: str) -> Link:
    """Return the connections to the server at a URL; raise ``ContractError`` if the URL is invalid."""
    scheme, _, rest = url.partition("://")
    if scheme not in _REDIS_SCHEMES or not rest:
        raise ContractError(
            f"engine={_without_password(url)!r} is not the URL of a server: pass a URL such as "
            f"'redis://127.0.0.1:6379/0'; supported schemes: {', '.join(_REDIS_SCHEMES)}"
        )
    try:
        target = _parsed(url)
        options = _options(target.first_url)
        if target.primary is not None:
            sentinels = [_place(host, 26379) for host in target.hosts]
            return SentinelLink(target.primary, sentinels, options)
        if target.clustered:
            return ClusterLink([_place(host, 6379) for host in target.hosts], options)
        return Link(options)
    except (ValueError, TypeError) as error:
        shown = _without_password(url)
        raise ContractError(f"engine={shown!r} is not a valid URL: {error}") from None


def _parsed(url: str) -> _Target:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    clustered = query.pop("cluster", "") in ("1", "true", "yes") or parts.scheme == "redis+cluster"
    user, separator, host_list = parts.netloc.rpartition("@")
    hosts = host_list.split(",")
    path = parts.path
    primary = None
    if parts.scheme == "redis+sentinel":
        primary, _, database = path.strip("/").partition("/")
        path = f"/{database}" if database else ""
        if not primary:
            raise ContractError(
                f"engine={_without_password(url)!r} does not name the primary: pass a URL such as "
                "'redis+sentinel://host:26379/mymaster'"
            )
    # redis-py parses a single host, so pass the first one.
    scheme = _REDIS_SCHEMES[parts.scheme]
    first_url = f"{scheme}://{user}{separator}{hosts[0]}{path}?{urlencode(query)}"
    return _Target(first_url, hosts, clustered, primary)


def _options(url: str) -> dict[str, Any]:
    """Return redis-py's options for a connection; raise an error if the URL has invalid ones."""
    chosen = parse_url(url)
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": REPLY_TIMEOUT,
        **({} if "lib_name" in chosen else _NAMELESS),
        **chosen,
        "parser_class": RawParser,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": _MAX_CONNECTIONS,
    }
    # Creating a connection object does not connect, but raises an error for unknown settings.
    ConnectionPool(**options).make_connection()
    return options


def _place(host: str, port: int) -> Place:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError(f"{host!r} is not a host name with an optional port")
    return parts.hostname, parts.port or port


def _without_password(url: str) -> str:
    shown = re.sub(r"^([\w+]+://)?.*@", r"\1***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", shown)
