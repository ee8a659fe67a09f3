"""The list of all services, with a descriptor for each.

The cloud, the plugin, the command, the control API and the console read it. A new service also
needs two fixtures in ``plugin`` and a method of ``BaseCloud``, for type checkers, and the modules
that `_service()` names by their usual places. Modules are named here and not imported, because every
run that checks a setting imports this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .fake import Fake


class Service(NamedTuple):
    """One kind of fake: its names, its modules and its features.

    ``fixture`` is the name of its fixture, ``word`` its name on the command line and in the
    server's configuration file (None if it cannot be started there). ``fake`` is the import path
    (``"package.module:name"``) of the fake's class. ``in_process``: clients of this process may skip
    the socket. ``delivers``: it sends requests to destinations, which ``--forward`` can redirect.
    ``development`` are the default settings of a server that the command line starts. ``report``
    is the import path of its functions for reports (see `reporting.contract`), ``data`` that of the
    module that reads the data of its fakes (see `data_module()`); empty if they have none.
    ``touches`` is the import path of a function that returns what a request touches (`core.touches`).
    ``files`` are the beginnings of files that its fakes load, by the field of a state file that names
    them. ``base64_fields`` are the fields of its JSON objects that are Base64, by a field that only such
    objects have. For another package's fake, ``view`` is the import path of a function that returns its
    data.
    """

    fixture: str
    fake: str
    word: str | None = None
    in_process: bool = False
    delivers: bool = False
    development: Mapping[str, Any] = {}
    report: str = ""
    data: str = ""
    touches: str = ""
    files: Mapping[str, tuple[bytes, ...]] = {}
    base64_fields: Mapping[str, tuple[str, ...]] = {}
    view: str | None = None


def _service(fixture: str, word: str, class_name: str, **options: Any) -> Service:
    """Return a service of this package that the command line can start."""
    return Service(
        fixture,
        f"pytest_fakecloud.{word}.fake:{class_name}",
        word=word,
        in_process=True,
        report=f"pytest_fakecloud.{word}.report.functions:FUNCTIONS",
        data=f"pytest_fakecloud.{word}.inspect.data",
        touches=f"pytest_fakecloud.{word}.touches:touches_of_request",
        **options,
    )


_RECEIVED = "pytest_fakecloud.queue.report.functions:OF_RECEIVERS"
_KV_SERVER = {
    "port": 7401,
    "token": "local-kv-token",
    "database_port": 7405,
    "database_password": "local-kv-password",
}
_DUMPS = {"rdb": (b"REDIS", b"VALKEY")}
_VECTOR_INDEX = {"port": 7402, "token": "local-vector-token"}
_BROKER = {"port": 7403, "token": "local-broker-password"}
_QUEUE = {"port": 7404, "dev_credentials": True}
"""With the credentials of the vendor's own development server, which are public."""
_OF_CALLBACKS = {
    "sourceBody": ("sourceBody", "body", "responseBody"),
    "bodyBase64": ("bodyBase64",),
}


SERVICES: Mapping[str, Service] = {
    service.fixture: service
    for service in (
        _service("kv_server", "kv", "KVServer", development=_KV_SERVER, files=_DUMPS),
        _service("vector_index", "vector", "VectorIndex", development=_VECTOR_INDEX),
        _service("broker", "broker", "Broker", development=_BROKER),
        _service(
            "queue",
            "queue",
            "Queue",
            development=_QUEUE,
            delivers=True,
            base64_fields=_OF_CALLBACKS,
        ),
        Service(
            "callback_capture",
            "pytest_fakecloud.queue.capture.fake:CallbackCapture",
            report=_RECEIVED,
        ),
        Service(
            "destination",
            "pytest_fakecloud.queue.delivery.destination_server:Destination",
            report=_RECEIVED,
        ),
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
    service = named(fixture)
    if service is not None:
        return service
    from ..core.errors import ContractError, unknown_name

    raise ContractError(unknown_name("service", fixture, SERVICES))


def part_of(service: Service, name: str | None) -> str:
    """Return what a fake is called where the command line starts it: ``kv``, or ``kv:NAME`` for a fake
    whose name is not that of its fixture.
    """
    return service.word or "" if name in (None, service.fixture) else f"{service.word}:{name}"


def split_part(part: str) -> tuple[Service, str | None]:
    """Return the service and the name of a fake that the command line calls ``kv`` or ``kv:NAME``.
    Without a name, it has that of its fixture.

    Raises ``ContractError`` for another service and for an empty name.
    """
    from ..core.errors import ContractError, shown, unknown_name

    word, colon, name = part.partition(":")
    service = named(word)
    if service is None or service.word is None:
        raise ContractError(unknown_name("service", word, services_by_word()))
    if colon and not name:
        raise ContractError(f"{shown(part)} has no name: pass {word}, or {word}:NAME")
    return service, name or None


def by_part(services: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the settings of each fake to start, by ``part_of()``, with the fake's name among them.

    Raises ``ContractError`` if settings contradict the name, and if two fakes have the same name or
    would share the names of their variables.
    """
    from ..core.errors import ContractError, shown

    fakes: dict[str, dict[str, Any]] = {}
    parts: dict[str, str] = {}
    for part, settings in services.items():
        service, name = split_part(part)
        own = settings.get("name")
        if own is not None and (not isinstance(own, str) or not own):
            raise ContractError(f"name={shown(own)} of {part} must be a non-empty string")
        if name is not None and own not in (None, name):
            raise ContractError(f"{part} has the setting name={shown(own)} too: leave it out")
        name = name or own
        full_name = name or service.fixture
        # Names of which one prefix is made would have the same variables.
        for taken, of in parts.items():
            if taken == full_name:
                raise ContractError(
                    f"two fakes have the name {shown(full_name)}: give each its own name"
                )
            if name and variable_prefix(taken) == variable_prefix(full_name):
                raise ContractError(
                    f"{of} and {part} would have the same variables, which begin with "
                    f"{variable_prefix(full_name)}: choose another name"
                )
        parts[full_name] = part
        fakes[part_of(service, name)] = {**settings, **({"name": name} if name else {})}
    return fakes


def variable_prefix(name: str) -> str:
    """Return the beginning of the variables of a fake with a name: ``PRODUCTS_`` of ``products``."""
    prefix = re.sub(r"\W", "_", name.upper(), flags=re.ASCII) + "_"
    return f"_{prefix}" if prefix[0].isdigit() else prefix


def own_prefix(name: str, fixture: str) -> str:
    """Return the beginning of the variables of a fake: none if its name is that of its fixture."""
    return "" if name == fixture else variable_prefix(name)


def fake_class(service: Service) -> type[Fake]:
    loaded: type[Fake] = imported(service.fake)
    return loaded


def settings_class(service: Service) -> Any:
    """Return the class that declares the settings of a service."""
    return fake_class(service)._config_class


@cache
def data_module(name: str) -> Any:
    """Import the module of a service, given by fixture or ``word``, that reads the data of its fakes
    for the console, the control API, explorations and reports; None if it has none.
    """
    service = named(name)
    return None if service is None or not service.data else imported(service.data)


def saved_part(word: str) -> Any:
    """Import the module of a service that turns its data into plain JSON and back."""
    return import_module(f"pytest_fakecloud.{word}.saved")


@cache
def imported(path: str) -> Any:
    """Import a module, or a name in it, given as ``"package.module:name"``."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)
