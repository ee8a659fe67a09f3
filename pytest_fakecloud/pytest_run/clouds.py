"""The clouds of a pytest run: their creation, and the variables of their fakes."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from ..cloud.base import fixture_fake
from ..cloud.cloud import Cloud
from ..core.exits import Exits
from ..core.settings import DeliveryMode
from ..process.replace import swap
from .options import without_traceback


def new_cloud(
    config: pytest.Config, settings: Mapping[str, Any], delivery: DeliveryMode = "driven"
) -> Cloud:
    """Create a cloud with the settings of a test or of the session, and of its fixtures' fakes.

    Its queues deliver only when the test runs them, so that no outcome depends on the speed of a
    thread. A ``Cloud()`` without pytest has another default (see ``BaseCloud``).
    """
    cloud = Cloud(
        seed=settings["seed"],
        now=settings["now"],
        clock=settings["clock"],
        process_time=settings["process_time"],
        delivery=delivery,
        transport=settings["transport"],
        tls=settings["tls"],
        share_tls_context=settings["share_tls_context"],
    )
    cloud._context.fixture_settings = settings
    cloud._context.cache = getattr(config, "cache", None)  # None with -p no:cacheprovider
    return cloud


fake_in = without_traceback(fixture_fake)
"""Returns the fake of a fixture in a cloud."""


def publish_env(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, exits: Exits) -> None:
    """Set the variables of a cloud's fakes, and of those that start until ``exits`` are closed, at the
    end of the test, because the cloud may outlive it. ``monkeypatch`` restores the variables.
    """
    seen: set[str] = set()

    def publish(fake: Any) -> None:
        is_first = not seen
        variables = dict(fake.env)
        if cloud.authority is not None:
            variables.update(cloud.authority.variables)
        for name, value in variables.items():
            if name not in seen:
                seen.add(name)
                monkeypatch.setenv(name, value)
        if cloud.authority is not None and is_first:
            _replace_default_opener(exits)

    listeners = cloud._context.listeners
    exits.callback(listeners.remove, publish)
    listeners.add(publish)
    for fake in cloud.fakes():
        publish(fake)


def _replace_default_opener(exits: Exits) -> None:
    """Give ``urlopen()`` an opener that has read the variables with the certificate authority, until
    ``exits`` are closed. Since Python 3.12, the shared opener keeps the first TLS context. An
    application's own opener stays.
    """
    opener: Any = getattr(urllib.request, "_opener", None)
    default: Any = urllib.request.build_opener()
    usual = [*map(type, default.handlers)]
    # The default opener has no ProxyHandler if it was made before NO_PROXY was set for the fakes.
    early = [kind for kind in usual if kind is not urllib.request.ProxyHandler]
    if opener is None or [*map(type, opener.handlers)] in (usual, early):
        swap(exits, urllib.request, "_opener", default)
