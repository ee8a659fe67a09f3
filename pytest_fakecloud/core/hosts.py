"""Names and addresses of hosts, which are never resolved."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address


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
