"""Lookups of a report: what depends on several entries of the journal, or on the fakes' data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeVar

from ..cloud.base import BaseCloud, context_of
from ..core.calls import Entry
from ..core.recorder import SharedRecords
from .contract import ServiceLookups, functions_of
from .errors import contained
from .mask import Mask
from .model import ReplacedValue

_WORD = re.compile(r"\b\w{20,}")
"""A word that is as long as an id."""


class DeliveryExchange(NamedTuple):
    """The request and the response of a delivery."""

    headers: Iterable[tuple[str, str]]
    body: bytes
    response_headers: Iterable[tuple[str, str]]
    response_body: bytes


_Own = TypeVar("_Own", bound=ServiceLookups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups(ServiceLookups):
    """Lookups of one cloud and its journal: those of all services together. A report adds the
    ``background``, and once it has rows, what these ``replaced``.
    """

    exchanges: Mapping[int, DeliveryExchange] = field(default_factory=dict)
    """The request and the response of each recent delivery, by the number at which it began."""
    background: Mapping[int, Any] = field(default_factory=dict)
    """What fakes know about calls beside their answers, by the call's number."""
    replaced: Mapping[int, Sequence[ReplacedValue]] = field(default_factory=dict)
    """The writes of each row that replaced another value, by the row's number."""
    services: Mapping[type, ServiceLookups] = field(default_factory=dict)
    """The lookups of each service, by their class (see `of()`)."""
    mask: Mask = field(default_factory=Mask)
    """The mask of the whole report."""

    def of(self, own_class: type[_Own]) -> _Own:
        """Return the lookups of the service with a class of its own; empty ones without the service."""
        lookups = self.services.get(own_class)
        return lookups if isinstance(lookups, own_class) else own_class()

    def short(self, name: object) -> str:
        """Return the short form of an id or name; the name itself if it has none."""
        text = str(name)
        return self.ids.get(text) or self.names.get(text, text)

    def with_short_ids(self, text: str) -> str:
        """Return a text with the ids of fakes in their short form."""
        return _WORD.sub(lambda match: self.ids.get(match[0], match[0]), text)


def lookups_of(cloud: BaseCloud, entries: Sequence[Entry], errors: list[str]) -> Lookups:
    """Return the lookups of a cloud and its journal. The services mask credentials in grouped calls.
    Exceptions of services become lines of ``errors``.
    """
    mask = Mask(cloud)
    of_fakes = (fake.service for fake in cloud.fakes())
    contributed = [ServiceLookups()]
    for service in dict.fromkeys((*of_fakes, *(entry.service for entry in entries))):
        with contained("lookups failed", errors):
            contributed.append(functions_of(service).lookups(cloud, entries, mask))
    exchanges: dict[int, DeliveryExchange] = {}
    with contained("what deliveries sent cannot be shown", errors):
        exchanges = exchanges_of(cloud)
    every: dict[str, Any] = {
        own.name: reduce(or_, (getattr(lookups, own.name) for lookups in contributed))
        for own in fields(ServiceLookups)
    }
    services = {type(lookups): lookups for lookups in contributed}
    return Lookups(**every, exchanges=exchanges, services=services, mask=mask)


def exchanges_of(cloud: BaseCloud) -> dict[int, DeliveryExchange]:
    """Return what recent deliveries sent and received, by the number at which each began."""
    return {number: exchanged for fake in cloud.fakes()
            for number, exchanged in functions_of(fake.service).deliveries.exchanges(fake)}  # fmt: skip


def records_of(cloud: BaseCloud) -> SharedRecords:
    """Return what a cloud records beside its journal: actions, looks, and the places of calls."""
    return context_of(cloud).recorder.shared
