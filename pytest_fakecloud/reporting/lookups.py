"""Lookups of a report: what depends on several entries of the journal, or on the fakes' data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from ..cloud.base import BaseCloud, context_of
from ..core.calls import Entry
from ..core.recorder import SharedRecords
from .contract import functions_of
from .errors import contained
from .mask import Mask
from .model import MaskedCall, ReplacedValue

_WORD = re.compile(r"\b\w{20,}")
"""A word that is as long as an id."""


class DeliveryExchange(NamedTuple):
    """The request and the response of a delivery."""

    headers: Iterable[tuple[str, str]]
    body: bytes
    response_headers: Iterable[tuple[str, str]]
    response_body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLookups:
    """Lookups that a service contributes (`ReportFunctions`). A service with further ones than these,
    which all modules use, has a class of its own for them.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    """The short forms of the ids that fakes made, which applications may store."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The short forms of other long names, such as those of consumers."""
    grouped_calls: Mapping[int, Sequence[MaskedCall]] = field(default_factory=dict)
    """The calls in the row of another one, by that one's number, such as those of a transaction."""
    without_row: Set[int] = frozenset()
    """The numbers of the calls without a row of their own: those in another one's row, or in none."""
    expected_errors: Set[int] = frozenset()
    """The numbers of the calls whose error their client expects, and answers itself."""
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What an entry does not say about an ID in it, for words and the console: of a message, the step of
    a workflow run whose result it has.
    """


_Own = TypeVar("_Own", bound=ServiceLookups)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


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
    contributed: list[ServiceLookups] = []
    for service in dict.fromkeys((*of_fakes, *(entry.service for entry in entries))):
        with contained("lookups failed", errors):
            if (function := functions_of(service).lookups) is not None:
                contributed.append(function(cloud, entries, mask))
    exchanges: dict[int, DeliveryExchange] = {}
    with contained("what deliveries sent cannot be shown", errors):
        exchanges = exchanges_of(cloud)
    return Lookups(
        ids=_merged(lookups.ids for lookups in contributed),
        names=_merged(lookups.names for lookups in contributed),
        grouped_calls=_merged(lookups.grouped_calls for lookups in contributed),
        without_row=frozenset().union(*(lookups.without_row for lookups in contributed)),
        expected_errors=frozenset().union(*(lookups.expected_errors for lookups in contributed)),
        details=_merged(lookups.details for lookups in contributed), exchanges=exchanges,
        services={type(lookups): lookups for lookups in contributed}, mask=mask,
    )  # fmt: skip


def _merged(mappings: Iterable[Mapping[_Key, _Value]]) -> dict[_Key, _Value]:
    return {key: value for mapping in mappings for key, value in mapping.items()}


def exchanges_of(cloud: BaseCloud) -> dict[int, DeliveryExchange]:
    """Return what recent deliveries sent and received, by the number at which each began."""
    return {number: exchanged for fake in cloud.fakes()
            for number, exchanged in functions_of(fake.service).deliveries.exchanges(fake)}  # fmt: skip


def records_of(cloud: BaseCloud) -> SharedRecords:
    """Return what a cloud records beside its journal: actions, looks, and the places of calls."""
    return context_of(cloud).recorder.shared
