"""The fake that a service is compared with, which has the service's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..cloud import Cloud
from ..core.errors import ContractError, ServiceError
from ..core.wording import unknown_name
from ..kv.handle import KVServer
from ..kv.settings import VERSION
from ..kv.table.versions import is_later
from .catalogue import Step
from .exchange import Unreachable
from .sides import Side, Target


@contextmanager
def fake_of(target: Target, facts: Mapping[str, Any]) -> Iterator[tuple[Target, Target]]:
    """Yield two targets: the real service over REST, and a fake with the same settings.

    For a Redis server (``redis://``), the first target is the REST interface of a fake that uses
    this server as its engine. ``facts`` is the result of ``facts_of()``. Raises ``Unreachable`` for
    a service that cannot be used, or whose settings no fake supports.
    """
    with Cloud() as cloud:
        try:
            both = _real_and_fake(cloud, target, facts)
        except (ContractError, ServiceError, LookupError, TypeError, ValueError) as error:
            raise Unreachable(f"{target.service}: {target.url} cannot be used: {error}") from None
        yield both


def _real_and_fake(cloud: Cloud, target: Target, facts: Mapping[str, Any]) -> tuple[Target, Target]:
    real = target
    fake: Any
    if target.is_redis:
        front = cloud.kv_server(name="real", dialect="redis", engine=target.url)
        real = Target("kv", front.url, front.token)
        fake = cloud.kv_server(
            dialect="redis", version=_version_of(front), modules=_modules_of(front)
        )
    elif target.service == "kv":
        fake = cloud.kv_server()
    elif target.service == "vector":
        fake = cloud.vector_index(
            dimension=facts["dimension"], similarity=facts["similarityFunction"]
        )
    elif target.service == "queue":
        fake = cloud.queue(delivery="driven")
    else:
        fake = cloud.broker(topics=dict(facts))
        token = f"{fake.username}:{fake.password}"
        return real, Target("broker", fake.url, token, target.topic)
    return real, Target(target.service, fake.url, fake.token)


def _version_of(server: KVServer) -> str:
    """Return the version of a real server, but at least the oldest version that a fake supports."""
    text = str(server.execute("INFO", "server"))
    found = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    named = found.get("valkey_version") or found["redis_version"]
    version = ".".join(re.findall(r"[0-9]+", named)[:3])
    return VERSION["redis"] if is_later(VERSION["redis"], version) else version


def _modules_of(server: KVServer) -> list[str]:
    return ["ReJSON"] if server.execute("COMMAND", "INFO", "JSON.SET") != [None] else []


def facts_of(side: Side) -> Mapping[str, Any]:
    """Return the settings that a fake needs: dimension and similarity of an index, topic of a
    broker.

    Raises ``Unreachable`` for a service that does not return them or that the scenarios do not fit.
    """
    target = side.target
    if target.service == "vector":
        found = _fetched(side, "/info").get("result")
        if not isinstance(found, dict):
            raise Unreachable(
                f"{target.url}/info does not describe an index: is it a vector index?"
            )
        if found.get("indexType", "DENSE") != "DENSE":
            raise Unreachable(
                f"{target.url} is an index of {found['indexType']} vectors; the scenarios need "
                "dense vectors"
            )
        return dict(found)
    if target.service == "broker":
        topics = _fetched(side, "/topics")
        if target.topic not in topics:
            raise Unreachable(
                f"{target.url}: {unknown_name('topic', target.topic, sorted(topics))}"
            )
        return {target.topic: topics[target.topic]}
    return {}


def _fetched(side: Side, path: str) -> dict[str, Any]:
    reply = side.send(Step("GET", path))
    if reply.status != 200 or not isinstance(reply.body, dict):
        raise Unreachable(
            f"{side.target.url}{path} returned {reply}: check the address and the credentials"
        )
    return reply.body
