"""Opens connections to real servers, given their URLs."""

from __future__ import annotations

import re
from inspect import signature
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, ConnectionPool, parse_url
from redis.retry import Retry

from ...core.errors import ContractError
from .cluster import ClusterLink
from .connection import CONNECT_TIMEOUT, REPLY_TIMEOUT, Link, Place, RawParser, SentinelLink

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "redis+sentinel", "valkey", "valkeys")
_NAMELESS = (
    {"driver_info": None}
    if "driver_info" in signature(AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
"""Options that keep redis-py from sending its name and version on each connection."""


def open_link(url: str) -> Link:
    """Return the connections to the server at a URL; raise ``ContractError`` if the URL is invalid."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES or not rest:
        raise ContractError(
            f"engine={_without_password(url)!r} is not the URL of a server: pass a URL such as "
            f"'redis://127.0.0.1:6379/0'; supported schemes: {', '.join(SCHEMES)}"
        )
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    clustered = query.pop("cluster", "") in ("1", "true", "yes") or scheme == "redis+cluster"
    names = {"valkey": "redis", "valkeys": "rediss", "redis+cluster": "redis"}
    plain = names.get(scheme, scheme)
    user, at, places = parts.netloc.rpartition("@")
    hosts = places.split(",")
    path, service = parts.path, ""
    if scheme == "redis+sentinel":
        plain = "redis"
        service, _, db = path.strip("/").partition("/")
        path = f"/{db}" if db else ""
        if not service:
            raise ContractError(
                f"engine={_without_password(url)!r} does not name the primary: pass a URL such as "
                "'redis+sentinel://host:26379/mymaster'"
            )
    first = f"{plain}://{user}{at}{hosts[0]}{path}?{urlencode(query)}"
    try:
        options = {
            "socket_connect_timeout": CONNECT_TIMEOUT,
            "socket_timeout": REPLY_TIMEOUT,
            **({} if "lib_name" in query else _NAMELESS),
            **parse_url(first),
            "parser_class": RawParser,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "max_connections": 100_000,
        }
        # Creating a connection object does not connect, but raises an error for unknown settings.
        ConnectionPool(**options).make_connection()
        if service:
            return SentinelLink(service, [_place(host, 26379) for host in hosts], options)
        if clustered:
            return ClusterLink([_place(host, 6379) for host in hosts], options)
        return Link(options)
    except (ValueError, TypeError) as error:
        raise ContractError(
            f"engine={_without_password(url)!r} is not a valid URL: {error}"
        ) from None


def _place(host: str, port: int) -> Place:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError(f"{host!r} is not a host name with an optional port")
    return parts.hostname, parts.port or port


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    shown = f"{head.partition('://')[0]}://***@{tail}" if at else url
    return re.sub(r"(password=)[^&]*", r"\1***", shown)
