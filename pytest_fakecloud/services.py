"""The services there are: one descriptor for each, and the only list of them.

The cloud, the plugin, the command, the control API and the console read it. What a new service
needs besides is what types need: a fixture in ``plugin`` and a method of ``AnyCloud``. Imported in
every pytest run that checks a setting or has fakes, so it names modules and imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .handle import Handle


class Service(NamedTuple):
    """One kind of fake: what it is called, where its parts are, and what it can do.

    ``fixture`` is the name of its fixture, ``word`` its name on the command line and in the server's
    file, None where nobody starts one there. ``handle`` and ``view`` are import paths
    (``"package.module:name"``): the class of its handle, and the function that tells what a handle
    holds as plain JSON for the console. ``in_process`` says that clients of this process may reach
    it without a socket.
    """

    fixture: str
    handle: str
    word: str | None = None
    in_process: bool = False
    view: str | None = None

    @property
    def alias(self) -> str | None:
        """The name of its fixture that no suite has of its own (``fakecloud_kv``)."""
        return None if self.word is None else f"fakecloud_{self.word}"


def _list(*services: Service) -> Mapping[str, Service]:
    return {service.fixture: service for service in services}


SERVICES = _list(
    Service(
        "kv_server",
        "pytest_fakecloud.kv.handle:KVServer",
        word="kv",
        in_process=True,
        view="pytest_fakecloud.standalone.views:kv_view",
    ),
    Service(
        "vector_index",
        "pytest_fakecloud.vector.handle:VectorIndex",
        word="vector",
        in_process=True,
        view="pytest_fakecloud.standalone.views:vector_view",
    ),
    Service(
        "broker",
        "pytest_fakecloud.broker.handle:Broker",
        word="broker",
        in_process=True,
        view="pytest_fakecloud.standalone.views:broker_view",
    ),
    Service(
        "queue",
        "pytest_fakecloud.queue.handle:Queue",
        word="queue",
        in_process=True,
        view="pytest_fakecloud.standalone.views:queue_view",
    ),
    Service("callback_capture", "pytest_fakecloud.queue.capture.handle:CallbackCapture"),
    Service("destination", "pytest_fakecloud.queue.delivery.destination_server:Destination"),
)
"""Every service by the name of its fixture, in the order in which they are told of."""


def by_word() -> dict[str, Service]:
    """The services that the command line and the server's file start, by their names there."""
    return {service.word: service for service in SERVICES.values() if service.word is not None}


def named(name: object) -> Service | None:
    """Return the service of a fixture's name or of a word (``"kv_server"``, ``"kv"``), or None."""
    if not isinstance(name, str):
        return None
    return SERVICES.get(name) or by_word().get(name)


def find(fixture: object) -> Service:
    """Return the service of a fixture's name or of a word; ``ContractError`` names the nearest."""
    found = named(fixture)
    if found is not None:
        return found
    from .core.errors import ContractError, shown
    from .core.matching import nearest

    near = nearest(fixture, SERVICES) if isinstance(fixture, str) else ""
    raise ContractError(
        f"{shown(fixture)} is not a service{near}; the services are: {', '.join(SERVICES)}"
    )


def handle_class(service: Service) -> type[Handle]:
    """Import the class of a service's handle."""
    found: type[Handle] = _imported(service.handle)
    return found


def view_of(service: Service) -> Callable[[Any], dict[str, Any]] | None:
    """Import the function that tells what a handle of the service holds, None where there is none."""
    found: Callable[[Any], dict[str, Any]] | None
    found = None if service.view is None else _imported(service.view)
    return found


@cache
def _imported(path: str) -> Any:
    import importlib

    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
