"""URL groups (*topics* in the first era) and their endpoints; one store for both eras.

Seed: an endpoint belongs to a topic and is changed by `PUT /v1/endpoints/<id>`; messages take the
URL with them when they are published, so only later ones use the new one.

Decided here: an endpoint is answered with the topic's id when it was created by id, else with its
name; removing the last endpoint through `/v2` removes the group, through `/v1` it stays; an
endpoint's name is a label for people and may be any printable text, spaces included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import bad_request, not_found, quota
from .headers import check_name, check_url
from .model import Headers

NewId = Callable[[str], str]


@dataclass(slots=True)
class Endpoint:
    """A URL within a group; `by_id` says that its creator named the topic by id."""

    id: str
    url: str
    name: str | None = None
    by_id: bool = False


@dataclass(slots=True)
class UrlGroup:
    """A named list of endpoints; `headers` are defaults for what is published to it."""

    id: str
    name: str
    created_us: int
    updated_us: int
    endpoints: list[Endpoint] = field(default_factory=list)
    headers: Headers = field(default_factory=list)

    def copy(self) -> UrlGroup:
        """Return an independent copy."""
        return replace(
            self,
            endpoints=[replace(endpoint) for endpoint in self.endpoints],
            headers=list(self.headers),
        )


class UrlGroups:
    """All groups, found by name, by id, or by the id of one of their endpoints."""

    def __init__(
        self, new_id: NewId, most: int | None = None, most_endpoints: int | None = None
    ) -> None:
        self._new_id = new_id
        self._most = most
        self._most_endpoints = most_endpoints
        self.by_name: dict[str, UrlGroup] = {}

    def find(self, name_or_id: str) -> UrlGroup | None:
        """Return the group of that name, or else of that id, or None."""
        found = self.by_name.get(name_or_id)
        if found is None and name_or_id.startswith("tpc_"):
            found = next((one for one in self.by_name.values() if one.id == name_or_id), None)
        return found

    def get(self, name_or_id: str) -> UrlGroup:
        """Return a group; 404 when there is none."""
        found = self.find(name_or_id)
        if found is None:
            raise not_found("topic", name_or_id)
        return found

    def create(self, name: str, now_us: int) -> UrlGroup:
        """Return the group of that name, made when it is not there.

        Raises `QueueError`: 400 for a bad name, 412 beyond the plan's groups.
        """
        check_name(name, "topic name")
        found = self.by_name.get(name)
        if found is None:
            if self._most is not None and len(self.by_name) >= self._most:
                raise quota("maxTopics", self._most)
            found = UrlGroup(self._new_id("tpc_"), name, now_us, now_us)
            self.by_name[name] = found
        return found

    def rename(self, group: UrlGroup, name: str, now_us: int) -> None:
        """Give a group another name; 400 for a bad or taken one."""
        check_name(name, "topic name")
        if name != group.name and name in self.by_name:
            raise bad_request(f"invalid topic name: {name!r} is taken")
        # Rebuilt, so that the group keeps its place in listings.
        self.by_name = {name if one is group else key: one for key, one in self.by_name.items()}
        group.name = name
        group.updated_us = now_us

    def remove(self, group: UrlGroup) -> None:
        """Forget a group with its endpoints."""
        self.by_name.pop(group.name, None)

    def add(
        self, group: UrlGroup, url: str, name: str | None, now_us: int, *, by_id: bool = False
    ) -> Endpoint:
        """Add an endpoint, or change the one of the same name or URL.

        Raises `QueueError`: 400 for a bad URL or name, 412 beyond the plan's endpoints.
        """
        check_url(url, "endpoint")
        if name is not None and not name.isprintable():
            raise bad_request(f"invalid endpoint name: {name!r} contains a control character")
        found = next(
            (one for one in group.endpoints if name is not None and one.name == name), None
        ) or next((one for one in group.endpoints if one.url == url), None)
        if found is None:
            if self._most_endpoints is not None and len(group.endpoints) >= self._most_endpoints:
                raise quota("maxEndpointsPerTopic", self._most_endpoints)
            found = Endpoint(self._new_id("ept_"), url, name, by_id)
            group.endpoints.append(found)
        else:
            found.url = url
            found.name = name if name is not None else found.name
        group.updated_us = now_us
        return found

    def remove_endpoints(
        self, group: UrlGroup, wanted: Iterable[Mapping[str, Any]], now_us: int
    ) -> None:
        """Remove endpoints by URL or name; the group goes with its last one."""
        for item in wanted:
            url, name = item.get("url"), item.get("name")
            group.endpoints = [
                one
                for one in group.endpoints
                if not (
                    (url is not None and one.url == url) or (name is not None and one.name == name)
                )
            ]
        group.updated_us = now_us
        if not group.endpoints:
            self.remove(group)

    def endpoint(self, endpoint_id: str) -> tuple[UrlGroup, Endpoint]:
        """Return an endpoint and its group; 404 when there is none."""
        for group, endpoint in self.endpoints():
            if endpoint.id == endpoint_id:
                return group, endpoint
        raise not_found("endpoint", endpoint_id)

    def endpoints(self) -> list[tuple[UrlGroup, Endpoint]]:
        """Return every endpoint with its group."""
        return [(group, one) for group in self.by_name.values() for one in group.endpoints]

    def copy(self) -> UrlGroups:
        """Return an independent copy."""
        twin = UrlGroups(self._new_id, self._most, self._most_endpoints)
        twin.by_name = {name: group.copy() for name, group in self.by_name.items()}
        return twin
