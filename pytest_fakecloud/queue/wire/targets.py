"""The URLs to which a publish request delivers.

The service knows some destinations by name. Source of their URLs: the official JavaScript client,
which publishes to ``api/llm``. In a test, they need a handler like any other destination, added by
name or by URL: ``queue.destinations.respond("api/llm", ...)``.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ..errors import INVALID_SCHEME, bad_request
from ..model import Message, PublishSettings
from .values import check_url

if TYPE_CHECKING:
    from ..engine.url_groups import UrlGroup


LLM_URL = "https://qstash.upstash.io/llm/v1/chat/completions"
"""The destination of ``api/llm``, and of the queue's own endpoint ``/llm/v1/chat/completions``."""
NAMED = {"api/llm": LLM_URL, "api/email": "https://api.resend.com/emails"}
_NEVER_PUBLIC = (".test", ".invalid", ".local", ".internal")


def named_url(destination: str) -> str | None:
    """Return the URL of a destination of the service itself, with or without a final slash."""
    return NAMED.get(destination.rstrip("/"))


class Target(NamedTuple):
    """A URL to deliver to, with the URL group and the endpoint that it belongs to.

    A message has these fields, too.
    """

    url: str
    topic_name: str | None = None
    endpoint_name: str | None = None
    endpoint_id: str | None = None


def target_of(message: Message) -> Target:
    return Target(message.url, message.topic_name, message.endpoint_name, message.endpoint_id)


def targets_of(
    destination: str, settings: PublishSettings, group: UrlGroup | None, *, public_only: bool
) -> list[Target]:
    """Return the targets of a destination: a URL, a URL group or a name such as ``api/llm``.

    ``public_only`` applies ``check_public()`` to a URL that is not in a group. Raises a 400 error
    for an invalid destination.
    """
    if group is not None:
        return [Target(one.url, group.name, one.name, one.id) for one in group.endpoints]
    named = named_url(destination)
    if named == LLM_URL and settings.callback is None:
        raise bad_request("invalid destination: api/llm needs the Upstash-Callback header")
    if named is not None:
        return [Target(named)]
    if destination.startswith("api/"):
        raise bad_request(
            f"invalid destination url: {INVALID_SCHEME}; of the service's own destinations there"
            f" are {' and '.join(NAMED)}"
        )
    check_url(destination, "destination")
    if public_only:
        check_public(destination)
    return [Target(destination)]


def check_public(url: str) -> None:
    """Raise a 400 error for a loopback address, and for a host name that cannot be public.

    Decided here: private addresses such as 10.0.0.1 are accepted.
    """
    loopback = loopback_address(url)
    if loopback is not None:
        raise bad_request(
            f"invalid destination url: endpoint resolves to a loopback address: {loopback}"
        )
    host = (urlsplit(url).hostname or "").rstrip(".")
    # Do not resolve names, but reject those that are known not to be public. (IPv6 addresses, with
    # their colons, may have no dot.)
    if ":" not in host and ("." not in host or host.endswith(_NEVER_PUBLIC)):
        raise bad_request(f"invalid destination url: unable to resolve host: {host}")


def loopback_address(url: str) -> str | None:
    """Return the loopback address in a URL (127.0.0.1 for localhost), or None for any other host."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
        if host == "localhost" or host.endswith(".localhost"):
            return "127.0.0.1"
        return host if ipaddress.ip_address(host).is_loopback else None
    except ValueError:
        return None
