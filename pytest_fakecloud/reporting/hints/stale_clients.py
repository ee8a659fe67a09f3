"""Clients with the address or the token of a closed fake, or with the address of no fake."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core.auth import bearer_token
from ...handle import closed_fakes_of, secrets_of, was_given
from ...http.hub import default_hub
from .introspection import attributes_of, locals_of, root

if TYPE_CHECKING:
    from ...any_cloud import AnyCloud

_CLIENTS = {"upstash_redis": "kv", "upstash_vector": "vector", "qstash": "queue"}
"""The packages of the official clients, with their services."""
FAKE_ADDRESS = re.compile(r"127\.0\.0\.1:(\d{4,5})|127\.0\.0\.1'?, port=(\d{4,5})")


def closed_fake_hints(cloud: AnyCloud, address: str) -> list[str]:
    """Explain a client that used the address of an earlier test's fake."""
    found = FAKE_ADDRESS.search(address)
    port = int(found[1] or found[2]) if found else 0
    if not default_hub().ports.has_given(port):
        return []
    if any(handle.url.endswith(f":{port}") for handle in cloud.handles):
        return []
    return _fakes_that_stay(
        cloud, f"a client called 127.0.0.1:{port}, the address of a fake that is closed"
    )


def _fakes_that_stay(cloud: AnyCloud, what: str) -> list[str]:
    names = " ".join(dict.fromkeys(handle.fixture for handle in cloud.handles))
    return [
        f"{what}, for example an earlier test's. An application that creates its client once needs "
        "fakes that last; in pytest.ini:",
        "    [pytest]",
        "    fakecloud_scope = session",
        f"    fakecloud_early = {names}",
    ]


def old_token_hints(cloud: AnyCloud) -> list[str]:
    """Explain requests from a client that still uses the token of a fake from an earlier test."""
    own = closed_fakes_of(cloud).secrets.union(*(secrets_of(handle) for handle in cloud.handles))
    for call in cloud.journal.calls():
        token = bearer_token(call.headers.get("Authorization")) if call.status == 401 else None
        if token is not None and token not in own and was_given(token):
            return _fakes_that_stay(
                cloud, f"a client called {call.handle} with the token of a fake that is closed"
            )
    return []


def unconnected_clients(
    cloud: AnyCloud, names: Iterable[object], error: BaseException | None
) -> list[str]:
    """Explain the test's official clients that use other addresses, unless a client uses the
    address of a fake.
    """
    urls = [handle.url for handle in cloud.handles]
    found = []
    for (package, address), client in _clients([*names, *locals_of(error)]).items():
        if any(address.startswith(url) for url in urls):
            return []
        if _CLIENTS[package] not in [handle.service for handle in cloud.handles]:
            continue
        found += closed_fake_hints(cloud, address) or [
            f"the test has {type(client).__name__} of {package} "
            f"for {address}, which is not the address of a fake: the fixture fakecloud_env "
            "(or fakecloud_env = true in pytest.ini) sets the variables such a client reads, before "
            "the application makes it"
        ]
    return list(dict.fromkeys(found))


def _clients(values: Iterable[object]) -> dict[tuple[str, str], object]:
    """Return the official clients among the given values and their attributes, by package and
    address. A client that is a part of another one is left out.
    """
    found: dict[tuple[str, str], object] = {}
    for value in values:
        for one in (value, *attributes_of(value).values()):
            if (package := root(type(one))) in _CLIENTS:
                parts = list(attributes_of(one).values())
                parts += [each for part in parts for each in attributes_of(part).values()]
                texts = [each for each in parts if isinstance(each, str)]
                urls = [text for text in texts if text.startswith(("http://", "https://"))]
                if urls:
                    found.setdefault((package, urls[0]), one)
    return found
