"""The data of fakes that rows read and wrote and that tests look at: subjects, and accesses to them.

``report/accesses.py`` of a service yields them.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

JournalNumber: TypeAlias = int
"""A position on the axis of a report: the counter of the cloud's journal, from 1; 0 if it is unknown, or
if there is none. ``docs/contributing/map.md`` has the words of the axis, with an example of each.
"""


@dataclass(frozen=True, slots=True)
class SubjectKind:
    """A kind of data, such as ``key``, and how its subjects mark rows. Services define their own."""

    name: str
    _: KW_ONLY
    has_value: bool = False
    """It has a value that statements read, so the writes before a read explain it."""
    has_id: bool = False
    """The name of a subject is an id that others repeat, so it links the rows that have it."""
    parts_have_ids: bool = False
    """The same of its parts, such as vectors."""
    links_accesses: bool = False
    """A row that accesses it is linked if the request, delivery or line of a touched row did, too."""
    is_delivered: bool = False
    """Deliveries bring it to the application."""
    unnamed: str = ""
    """The words for a subject without a name; by default, the name of the kind."""


EVERY_KIND = SubjectKind("data")


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """The subject of a row or a finding; the page filters rows by it."""

    kind: SubjectKind
    name: str
    """Empty if it is unknown, or for the default namespace."""
    fake: str
    is_all: bool = False
    """Whether it stands for all data of its kind; that of ``EVERY_KIND``, for all data of the fake."""

    @classmethod
    def all_of(cls, kind: SubjectKind, fake: str) -> ReportSubject:
        return cls(kind, "*", fake, is_all=True)

    def includes(self, other: ReportSubject) -> bool:
        is_same_kind = self.kind in (other.kind, EVERY_KIND)
        return self == other or (self.is_all and self.fake == other.fake and is_same_kind)


@dataclass(frozen=True, slots=True)
class DataAccess:
    """A read or a write of a subject or of a part of it, or only its name."""

    subject: ReportSubject
    writes: bool
    part: str = ""
    """A field, a member, a partition or a vector; empty for the whole."""
    succeeded: bool | None = True
    """False if a write was rejected or changed nothing, or if a read found nothing; None if the answer
    does not say that (see `success_of()`).
    """
    returns_value: bool = False
    """Whether a write returned the value before it."""
    adds: bool = False
    """Whether a write only changes the value, to which earlier writes have led, and neither replaces nor
    removes it.
    """
    order: JournalNumber = 0
    """When it happened. `rows` sets it, and no service."""
    is_named: bool = False
    """Whether this is neither a read nor a write. Others of the same row can be (see `named()`)."""
    value: object = field(default=None, compare=False)
    """What a write left there: a string, an object of JSON, or `DELETED`; None if it is not known."""
    expires_us: int | None = None
    """When what it wrote expires; None if it does not, or if that is not known."""
    answered_error: bool = False
    """Whether its command was answered with an error."""
    command: int = 0
    """A number that tells its command from others of the same call."""
    pattern: str = ""
    """That of a read of all subjects whose names match it (see `Sought`)."""

    @classmethod
    def named(cls, kind: SubjectKind, name: object, fake: str) -> DataAccess:
        """Return an access that only names a subject, by which the page filters rows; if its kind
        `has_id`, it links them.
        """
        return cls(ReportSubject(kind, str(name), fake), False, succeeded=None, is_named=True)

    @property
    def is_effective_write(self) -> bool:
        return self.writes and self.succeeded is not False

    @property
    def is_refused(self) -> bool:
        """Whether it failed, or is a write that did nothing. That a read found nothing is an answer."""
        return self.answered_error or (self.writes and self.succeeded is False)

    @property
    def reads(self) -> bool:
        return self.returns_value or not (self.writes or self.is_named)


DELETED = object()
"""The value of what a write removed."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Data that a test looked at or a call read: a subject or a part of it, or all subjects that match a
    ``pattern`` of shells, which is then also the name of the subject.
    """

    subject: ReportSubject
    part: str = ""
    pattern: str = ""

    def has(self, subject: ReportSubject) -> bool:
        sought = self.subject
        if sought.includes(subject) or subject.includes(sought):
            return True
        is_same_kind = (sought.kind, sought.fake) == (subject.kind, subject.fake)
        return is_same_kind and bool(self.pattern) and fnmatchcase(subject.name, self.pattern)

    def covers(self, access: DataAccess) -> bool:
        return self.has(access.subject) and (not self.part or access.part in ("", self.part))
