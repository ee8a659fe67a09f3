"""Opens connections to real servers, given their URLs."""

from __future__ import annotations

import re
from inspect import signature
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, ConnectionPool, parse_url
from redis.retry import Retry

from ...core.errors import ContractError
from .cluster import ClusterLink
from .connection import CONNECT_TIMEOUT, REPLY_TIMEOUT, Address, Link, RawParser, SentinelLink

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


def open_link(url: str) -> Link:
    """Return the connections to the server at a URL; raise ``ContractError`` if the URL is invalid."""
    scheme, _, rest = url.partition("://")
    if scheme not in _REDIS_SCHEMES or not rest:
        raise ContractError(
            f"engine={_without_password(url)!r} is not the URL of a server: pass a URL such as "
            f"'redis://127.0.0.1:6379/0'; supported schemes: {', '.join(_REDIS_SCHEMES)}"
        )
    try:
        return _link(url)
    except (ValueError, TypeError) as error:
        shown = _without_password(url)
        raise ContractError(f"engine={shown!r} is not a valid URL: {error}") from None


def _link(url: str) -> Link:
    scheme, netloc, path, query_string, _ = urlsplit(url)
    query = dict(parse_qsl(query_string))
    clustered = query.pop("cluster", "") in ("1", "true", "yes") or scheme == "redis+cluster"
    user, separator, host_list = netloc.rpartition("@")
    hosts = host_list.split(",")

    def options(path: str) -> dict[str, Any]:
        # redis-py parses a single host, so pass the first one.
        address = f"{_REDIS_SCHEMES[scheme]}://{user}{separator}{hosts[0]}{path}"
        return _options(f"{address}?{urlencode(query)}")

    if scheme == "redis+sentinel":
        primary, _, database = path.strip("/").partition("/")
        if not primary:
            raise ContractError(
                f"engine={_without_password(url)!r} does not name the primary: pass a URL such as "
                "'redis+sentinel://host:26379/mymaster'"
            )
        sentinels = [_address(host, 26379) for host in hosts]
        return SentinelLink(primary, sentinels, options(f"/{database}" if database else ""))
    if clustered:
        return ClusterLink([_address(host, 6379) for host in hosts], options(path))
    return Link(options(path))


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


def _address(host: str, port: int) -> Address:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError(f"{host!r} is not a host name with an optional port")
    return parts.hostname, parts.port or port


def _without_password(url: str) -> str:
    shown = re.sub(r"^([\w+]+://)?.*@", r"\1***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", shown)
