"""Hints about requests that did not reach their fake: what intercepted them, or where they were
sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .intercepting_libraries import interception_hints, request_of, suspicion_hints
from .introspection import chain
from .stale_clients import closed_fake_hints, unconnected_clients

if TYPE_CHECKING:
    from ...any_cloud import AnyCloud


def hints_about_error(cloud: AnyCloud, error: BaseException) -> list[str]:
    """Return hints that name the library which intercepted a request to a fake, or a client with the
    address of a closed fake, and say what to do.
    """
    found: list[str] = []
    for one in chain(error):
        found += interception_hints(cloud, one)
        if issubclass(type(one), OSError | _transport_error()):
            found += closed_fake_hints(cloud, f"{request_of(one)} {one}")
    return list(dict.fromkeys(found))


def _transport_error() -> type[BaseException]:
    return getattr(sys.modules.get("httpx"), "TransportError", OSError)


def hints_about_silence(
    cloud: AnyCloud, names: Iterable[object], error: BaseException | None = None
) -> list[str]:
    """Return hints about what may have intercepted requests to the fakes that received no call.

    ``names`` are the values in the test's module. They are not inspected by running their code, so
    lazy objects (Django's ``SimpleLazyObject``, werkzeug's ``LocalProxy``) are not evaluated.
    """
    called = [handle for handle in cloud.handles if len(handle.journal)]
    found = [] if called else unconnected_clients(cloud, names, error)
    return [*found, *suspicion_hints(cloud, error)]
