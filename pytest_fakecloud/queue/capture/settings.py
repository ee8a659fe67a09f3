"""Settings of the ``destination`` and ``callback_capture`` fakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...core.settings import HandleConfig, HandleSettings, Kind, optional, setting


class DestinationSettings(HandleSettings, total=False):
    """Keyword arguments of ``Cloud.destination()`` and of the marker."""


class CallbackCaptureSettings(HandleSettings, total=False):
    """Keyword arguments of ``Cloud.callback_capture()``, described in ``CallbackCaptureConfig``."""

    keys: Mapping[str, str] | None


_KEYS: Kind[Mapping[str, str]] = Kind(
    Mapping[str, str],
    "a mapping from name to signing key, all non-empty strings",
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(each, str) for each in value)
        and all(isinstance(each, str) and each for each in value.values())
    ),
    dict,
)


@dataclass(frozen=True, kw_only=True)
class CallbackCaptureConfig(HandleConfig):
    """Settings of a ``CallbackCapture``."""

    keys: Mapping[str, str] | None = setting(None, optional(_KEYS))
    """Signing keys, by name, of a queue outside this cloud; None: the keys of this cloud's queues."""
