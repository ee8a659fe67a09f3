"""The list of all services, with a descriptor for each.

The cloud, the plugin, the command, the control API and the console read it. A new service also
needs a fixture in ``plugin`` and a method of ``BaseCloud``, both for type checkers. Modules are
named here and not imported, because every run that checks a setting imports this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .handle import Handle


class Service(NamedTuple):
    """One kind of fake: its names, its modules and its features.

    ``fixture`` is the name of its fixture, ``word`` its name on the command line and in the
    server's configuration file (None if it cannot be started there). ``handle`` is the import path
    (``"package.module:name"``) of the fake's class. ``in_process``: clients of this process may skip
    the socket. ``delivers``: it sends requests to destinations, which ``--forward`` can redirect.
    ``development`` are the default settings of a server that the command line starts. ``data`` is
    the name of the module of ``reporting.data`` that reads the fake's data; for another package's fake,
    ``view`` is the import path of a function that returns it.
    """

    fixture: str
    handle: str
    word: str | None = None
    in_process: bool = False
    delivers: bool = False
    development: Mapping[str, Any] = {}
    data: str | None = None
    view: str | None = None

    @property
    def alias(self) -> str | None:
        """The alternative name of its fixture (``fakecloud_kv``), for suites that use the first."""
        return None if self.word is None else f"fakecloud_{self.word}"


def _service(
    fixture: str, word: str, class_name: str, development: Mapping[str, Any], delivers: bool = False
) -> Service:
    """Return a service of this package that the command line can start."""
    return Service(
        fixture,
        f"pytest_fakecloud.{word}.handle:{class_name}",
        word=word,
        in_process=True,
        development=development,
        data=word,
        delivers=delivers,
    )


_KV_SERVER = {
    "port": 7401,
    "token": "local-kv-token",
    "database_port": 7405,
    "database_password": "local-kv-password",
}
_VECTOR_INDEX = {"port": 7402, "token": "local-vector-token"}
_BROKER = {"port": 7403, "token": "local-broker-password"}
_QUEUE = {"port": 7404, "dev_credentials": True}
"""With the credentials of the vendor's own development server, which are public."""


SERVICES: Mapping[str, Service] = {
    service.fixture: service
    for service in (
        _service("kv_server", "kv", "KVServer", _KV_SERVER),
        _service("vector_index", "vector", "VectorIndex", _VECTOR_INDEX),
        _service("broker", "broker", "Broker", _BROKER),
        _service("queue", "queue", "Queue", _QUEUE, delivers=True),
        Service("callback_capture", "pytest_fakecloud.queue.capture.handle:CallbackCapture"),
        Service("destination", "pytest_fakecloud.queue.delivery.destination_server:Destination"),
    )
}
"""Every service by the name of its fixture, in the order in which services are listed."""


def services_by_word() -> dict[str, Service]:
    """Return the services that the command line and the configuration file can start, by ``word``."""
    return {service.word: service for service in SERVICES.values() if service.word is not None}


def named(name: object) -> Service | None:
    """Return the service with this fixture name or ``word`` (``"kv_server"``, ``"kv"``), or None."""
    if not isinstance(name, str):
        return None
    return SERVICES.get(name) or services_by_word().get(name)


def find(fixture: object) -> Service:
    """Return the service with this fixture name or ``word``; raise ``ContractError`` for others."""
    found = named(fixture)
    if found is not None:
        return found
    from .core.errors import ContractError, unknown_name

    raise ContractError(unknown_name("service", fixture, SERVICES))


def handle_class(service: Service) -> type[Handle]:
    """Import the class of a service's fake."""
    found: type[Handle] = _imported(service.handle)
    return found


def view_of(service: Service) -> Callable[[Any], dict[str, Any]] | None:
    """Import the function of a descriptor's ``view``; None if there is none."""
    return None if service.view is None else _imported(service.view)


@cache
def _imported(path: str) -> Any:
    import importlib

    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
