"""Strings that keys hold, where plain ``bytes`` do not say how a server stores them."""

from __future__ import annotations

__all__ = ["UnpackedInteger"]


class UnpackedInteger(bytes):
    """The digits of an integer that a server stores as text, as INCRBYFLOAT leaves them."""

    __slots__ = ()
