"""URL groups (called *topics* in v1) and their endpoints, shared by both API versions.

Specification: ``PUT /v1/endpoints/<id>`` changes an endpoint of a topic. Published messages keep
their URL, so the change applies to later messages only.

Decided here: an endpoint that was created by the topic's id is listed with this id, any other with
the topic's name. Removing the last endpoint removes the group in ``/v2``, but not in ``/v1``. An
endpoint's name may be any printable string, including spaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from ..errors import bad_request, existing, not_found, quota
from ..model import HeaderList, copy_of
from ..wire.headers import check_url
from ..wire.values import check_name

if TYPE_CHECKING:
    from .data import QueueData


@dataclass(eq=False)
class GroupEndpoint:
    """An endpoint of a URL group: one of its URLs. ``by_id`` is True if the request that created it used
    the topic's id.
    """

    id: str
    url: str
    name: str | None
    by_id: bool
    number: int = 0


@dataclass(eq=False)
class UrlGroup:
    """A named list of endpoints. ``headers`` are defaults for messages published to the group.

    The endpoints are indexed, because the default plan does not limit them.
    """

    id: str
    name: str
    created_us: int
    updated_us: int
    headers: HeaderList = field(default_factory=list)
    by_id: dict[str, GroupEndpoint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_key: dict[tuple[str, str | None], dict[str, GroupEndpoint]] = {}
        for endpoint in self.by_id.values():
            self._index(endpoint)
        # The endpoints are numbered in the order in which they were added, also after removals.
        self._numbers = count(1 + max((item.number for item in self.by_id.values()), default=-1))

    @property
    def endpoints(self) -> Collection[GroupEndpoint]:
        return self.by_id.values()

    def all_with(self, *, url: object = None, name: object = None) -> list[GroupEndpoint]:
        """Return the endpoints with the given URL or name, in order."""
        matching: dict[str, GroupEndpoint] = {}
        for what, value in (("url", url), ("name", name)):
            if isinstance(value, str):
                matching |= self._by_key.get((what, value), {})
        return sorted(matching.values(), key=lambda endpoint: endpoint.number)

    def add(self, endpoint: GroupEndpoint) -> None:
        endpoint.number = next(self._numbers)
        self.by_id[endpoint.id] = endpoint
        self._index(endpoint)

    def remove(self, endpoint: GroupEndpoint) -> None:
        self._unindex(endpoint)
        del self.by_id[endpoint.id]

    def change(self, endpoint: GroupEndpoint, url: str, name: str | None) -> None:
        self._unindex(endpoint)
        endpoint.url, endpoint.name = url, name
        self._index(endpoint)

    def _index(self, endpoint: GroupEndpoint) -> None:
        for key in (("url", endpoint.url), ("name", endpoint.name)):
            self._by_key.setdefault(key, {})[endpoint.id] = endpoint

    def _unindex(self, endpoint: GroupEndpoint) -> None:
        for key in (("url", endpoint.url), ("name", endpoint.name)):
            others = self._by_key[key]
            del others[endpoint.id]
            if not others:
                del self._by_key[key]

    def copy(self) -> UrlGroup:
        endpoints = {endpoint.id: copy_of(endpoint) for endpoint in self.endpoints}
        return replace(copy_of(self), by_id=endpoints)


class UrlGroups:
    """The URL groups, which can be found by name, by id, or by the id of an endpoint."""

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self._most = data.limits.groups
        self._most_endpoints = data.limits.endpoints_per_group
        self.by_name: dict[str, UrlGroup] = {}

    def find(self, name_or_id: str) -> UrlGroup | None:
        group = self.by_name.get(name_or_id)
        if group is None and name_or_id.startswith("tpc_"):
            group = next((group for group in self.by_name.values() if group.id == name_or_id), None)
        return group

    def get(self, name_or_id: str) -> UrlGroup:
        return existing(self.find(name_or_id), "topic", name_or_id)

    def create(self, name: str) -> UrlGroup:
        """Return the group with the given name, creating it if necessary.

        Raises ``QueueError``: 400 for an invalid name, 412 if the plan's group limit is exceeded.
        """
        check_name(name, "topic name")
        group = self.by_name.get(name)
        if group is None:
            if self._most is not None and len(self.by_name) >= self._most:
                raise quota("maxTopics", self._most)
            now = self._data.clock.now_us()
            group = UrlGroup(self._data.new_id("tpc_"), name, now, now)
            self.by_name[name] = group
        return group

    def rename(self, group: UrlGroup, name: str) -> None:
        """Rename a group; raise a 400 error if the name is invalid or already in use."""
        check_name(name, "topic name")
        if name != group.name and name in self.by_name:
            raise bad_request(f"invalid topic name: {name!r} is already in use")
        # Rebuild the dict, so that the group keeps its position in listings.
        self.by_name = {
            name if other is group else key: other for key, other in self.by_name.items()
        }
        group.name = name
        group.updated_us = self._data.clock.now_us()

    def set_headers(self, group: UrlGroup, headers: HeaderList) -> None:
        """Set the default headers of a group."""
        group.headers = headers
        group.updated_us = self._data.clock.now_us()

    def remove(self, group: UrlGroup) -> None:
        del self.by_name[group.name]

    def add(
        self, group: UrlGroup, url: str, name: str | None, *, by_id: bool = False
    ) -> GroupEndpoint:
        """Add an endpoint, or change the endpoint with the same name or URL.

        Raises ``QueueError``: 400 for an invalid URL or name, 412 if the plan's endpoint limit is
        exceeded.
        """
        _check_endpoint(url, name)
        same = group.all_with(name=name) or group.all_with(url=url)
        if same:
            endpoint = same[0]
            group.change(endpoint, url, name if name is not None else endpoint.name)
        else:
            if self._most_endpoints is not None and len(group.by_id) >= self._most_endpoints:
                raise quota("maxEndpointsPerTopic", self._most_endpoints)
            endpoint = GroupEndpoint(self._data.new_id("ept_"), url, name, by_id)
            group.add(endpoint)
        group.updated_us = self._data.clock.now_us()
        return endpoint

    def add_all(self, name: str, endpoints: list[tuple[str, str | None]]) -> UrlGroup:
        """Add endpoints to a group, creating it if necessary. If one is rejected, none is added."""
        for url, endpoint_name in endpoints:
            _check_endpoint(url, endpoint_name)
        if self._most_endpoints is not None:
            # Check all endpoints by adding them to a copy first. With a limit, the copy is small.
            group = self.by_name.get(name)
            trial = UrlGroup("", name, 0, 0) if group is None else group.copy()
            for url, endpoint_name in endpoints:
                self.add(trial, url, endpoint_name)
        group = self.create(name)
        for url, endpoint_name in endpoints:
            self.add(group, url, endpoint_name)
        return group

    def change_endpoint(self, group: UrlGroup, endpoint: GroupEndpoint, url: str) -> None:
        """Change the URL of an endpoint; raise a 400 error if it is invalid."""
        check_url(url, "endpoint")
        group.change(endpoint, url, endpoint.name)
        group.updated_us = self._data.clock.now_us()

    def remove_endpoint(self, group: UrlGroup, endpoint: GroupEndpoint) -> None:
        """Remove an endpoint. A group without endpoints remains, as in ``/v1``."""
        group.remove(endpoint)
        group.updated_us = self._data.clock.now_us()

    def remove_endpoints(self, group: UrlGroup, endpoints: Iterable[Mapping[str, Any]]) -> None:
        for item in endpoints:
            for endpoint in group.all_with(url=item.get("url"), name=item.get("name")):
                group.remove(endpoint)
        group.updated_us = self._data.clock.now_us()
        if not group.endpoints:
            self.remove(group)

    def endpoint(self, endpoint_id: str) -> tuple[UrlGroup, GroupEndpoint]:
        for group in self.by_name.values():
            if (endpoint := group.by_id.get(endpoint_id)) is not None:
                return group, endpoint
        raise not_found("endpoint", endpoint_id)


def _check_endpoint(url: str, name: str | None) -> None:
    check_url(url, "endpoint")
    if name is not None and not name.isprintable():
        raise bad_request(f"invalid endpoint name: {name!r} contains a control character")
