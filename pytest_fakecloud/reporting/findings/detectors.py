"""The input of the detectors, and functions with which they create findings."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ...core.calls import Action, Call, Entry, Event
from ..applications import ServedRequest
from ..lookups import Lookups, records_of
from ..model import Finding, Severity, Subject

if TYPE_CHECKING:
    from ...base_cloud import BaseCloud

NONE = re.compile(r"(?<![A-Za-z0-9])None(?![A-Za-z0-9])")
"""``None`` as a separate word, which Python writes for a missing value."""


def about_entry(
    kind: str,
    entry: Entry,
    evidence: Iterable[int] = (),
    /,
    *,
    severity: Severity = "cause",
    **values: Any,
) -> Finding:
    """Return a finding about a journal entry; ``evidence`` are the numbers of other entries."""
    rows = tuple(dict.fromkeys((entry.number, *evidence)))
    return Finding(kind, entry.handle, rows, severity=severity, values=values)


def about(
    what: str, kind: str, entry: Entry, name: object, evidence: Iterable[int] = (), /, **values: Any
) -> Finding:
    """Return a finding about a subject, such as a key: ``what`` is its kind and ``name`` its name.

    ``entry`` is the journal entry that decided it, ``evidence`` are the numbers of other entries.
    ``values`` can include the severity.
    """
    subject = Subject(what, str(name), entry.handle)
    finding = about_entry(kind, entry, evidence, **{what: str(name), **values})
    return replace(finding, subjects=(subject,))


about_group = partial(about, "group")
about_key = partial(about, "key")
about_message = partial(about, "message")
about_namespace = partial(about, "namespace")


def _as_known(entry: Entry) -> Entry:
    """Return a copy of a call without its answer if a fault altered the answer.

    The endpoint did not give such an answer, so nothing about the fake's data follows from it.
    """
    if not isinstance(entry, Call) or entry.outcome != "altered":
        return entry
    known = copy.copy(entry)
    known.response_body = b""
    return known


@dataclass
class ObservedTest:
    """A test as the detectors see it: the open fakes of its cloud, and the journal.

    ``idle_s`` is the wall-clock time in seconds that the test waited, ``raised`` its exception,
    ``served`` are the requests to the application.
    """

    cloud: BaseCloud
    lookups: Lookups
    idle_s: float | None = None
    raised: BaseException | None = None
    served: Sequence[ServedRequest] = ()
    commands: dict[object, list[Any]] = field(default_factory=dict, init=False)
    """The commands of key-value servers and of their databases (see `kv.history.history()`)."""

    @cached_property
    def entries(self) -> list[Entry]:
        # Leave out calls before a restored snapshot, which do not explain the current data.
        rewound = {one.name: getattr(one, "_rewound", 0) for one in self.cloud.fakes()}
        every = self.cloud.journal.entries
        return [_as_known(one) for one in every if one.number > rewound.get(one.handle, 0)]

    @cached_property
    def calls(self) -> list[Call]:
        return [entry for entry in self.entries if isinstance(entry, Call)]

    def handles(self, service: str) -> list[Any]:
        return [handle for handle in self.cloud.fakes() if handle.service == service]

    def calls_of(self, handle: Any) -> list[Call]:
        return [call for call in self.calls if call.handle == handle.name]

    def actions_on(self, handle: Any) -> list[Action]:
        return [one for one in records_of(self.cloud).actions if one.handle == handle.name]

    def calls_to(self, service: str) -> Iterator[Call]:
        """Yield the calls to the fakes of a service, one fake after the other."""
        for handle in self.handles(service):
            yield from self.calls_of(handle)

    @cached_property
    def attempts(self) -> list[Event]:
        """The delivery attempts during which the application did nothing else."""
        alone = (one for one in self.events("attempt") if one.data.get("alone"))
        return [one for one in alone if isinstance(one.data.get("began"), int)]

    def attempt_around(self, entry: Entry) -> Event | None:
        """Return the attempt during which an entry was recorded; None outside of attempts."""
        around = (one for one in self.attempts if one.data["began"] < entry.number < one.number)
        return next(around, None)

    def events(self, kind: str) -> list[Event]:
        return [e for e in self.entries if isinstance(e, Event) and e.kind == kind]
