"""Settings for publishing a message again."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..model import PublishSettings
from .text import over


def settings_to_republish(
    settings: PublishSettings, given: dict[str, Any], max_retries: int | None = None
) -> PublishSettings:
    """Return the settings for publishing a message again, overridden by ``given``.

    Delay and deduplication are dropped unless ``given`` contains them. ``max_retries`` applies if
    neither contains a number of retries. A forwarded header replaces the headers of the same name.
    """
    plain = replace(
        settings,
        delay_us=0,
        not_before_us=None,
        deduplication_id=None,
        content_based_deduplication=False,
        retries=max_retries if settings.retries is None else settings.retries,
    )
    merged = {one.name: getattr(plain, one.name) for one in fields(plain)} | given
    for name in ("forward", "callback_headers", "failure_callback_headers"):
        base = getattr(plain, name)
        if base and given.get(name):
            merged[name] = over(base, given[name])
    return PublishSettings(**merged)
