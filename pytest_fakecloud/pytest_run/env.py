"""The environment variables of a test's fakes."""

from __future__ import annotations

import urllib.request
from typing import Any

from ..cloud.base import variables_of
from ..cloud.cloud import Cloud
from ..core.exits import Exits
from ..process.replace import swap
from ..process.surroundings import Variables


def set_variables(cloud: Cloud, exits: Exits) -> None:
    """Set the variables of a cloud's fakes, and of those that start later, until ``exits`` are closed.

    They are those of the test, because the cloud may outlive it. They are closed after all fixtures of
    the test have ended, so that its ``monkeypatch`` has already undone its own changes.
    """
    variables = Variables()
    exits.callback(variables.restore)
    seen: set[str] = set()

    def set_those_of(fake: Any) -> None:
        is_first = not seen
        env = dict(variables_of(fake))
        if cloud.authority is not None:
            env.update(cloud.authority.variables)
        for name, value in env.items():
            if name not in seen:
                seen.add(name)
                variables.set(name, value)
        if cloud.authority is not None and is_first:
            _replace_default_opener(exits)

    exits.callback(cloud._on_start.remove, set_those_of)
    cloud._on_start.add(set_those_of)
    for fake in cloud.fakes():
        set_those_of(fake)


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
