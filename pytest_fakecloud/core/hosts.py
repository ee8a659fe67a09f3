"""URLs, and names and addresses of hosts, which are never resolved."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

_HOST = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._~!$&'()*+,;=%-]*))(?::[0-9]*)?"
)
"""A host and a port (RFC 3986, 3.2.2). Nothing else can follow the brackets of an address."""


def host_of(header: str) -> str | None:
    """Return the host of a ``Host`` header in lower case, without brackets and a final dot; None if
    the header is malformed.
    """
    parts = _HOST.fullmatch(header)
    if parts is None or (parts["ipv6"] and not isinstance(address_of(parts["ipv6"]), IPv6Address)):
        return None
    return (parts["ipv6"] or parts["name"]).rstrip(".").lower()


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host is given as, or None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host, given as a name or an IP address."""
    if (address := address_of(host)) is not None:
        return address.is_loopback
    return host == "localhost" or host.endswith(".localhost")


def parts_of_url(url: str) -> SplitResult:
    """Return the parts of a URL; if it is malformed, the whole URL is the path."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")
