"""What a failing statement read: a class for each way in which that is found, with its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from ...core.errors import listed
from ..accesses import DataAccess, JournalNumber, Sought
from ..lookups import Lookups
from ..model import Place

UnwrittenKind: TypeAlias = Literal["never", "later"]
"""Why no row wrote data that a failing statement read: none did, or only after its last read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadData:
    """What a failing statement read. Each way in which that is found has a class of its own."""

    kind: ClassVar[str]
    """The name of the class in the JSON form."""
    sought: tuple[Sought, ...]
    place: Place | None = None
    """The line of the statement."""
    assigned_at: int = 0
    """The line of the only assignment in its function whose calls or looks it used; 0 without one."""
    row_numbers: tuple[JournalNumber, ...] = ()
    """The calls or deliveries whose results it compared."""
    until: Mapping[Sought, JournalNumber] = field(default_factory=dict)
    """The last read of each."""
    unwritten: Mapping[Sought, UnwrittenKind] = field(default_factory=dict)
    """The data that no row wrote before it was read."""

    @property
    def read_values(self) -> bool:
        """Whether it read values, and not only what calls wrote."""
        return True

    def described(self, statement: str, lookups: Lookups, most: int) -> str:
        """Return what it, named ``statement``, read, in words with at most so many names."""
        raise NotImplementedError

    def covers(self, access: DataAccess) -> bool:
        return any(sought.covers(access) for sought in self.sought)

    def read_until(self, access: DataAccess) -> JournalNumber:
        """Return when the data of an access was read last; 0 if it was not read.

        Parts that have ids are read by themselves, if any is: of a fetch of the vector ``a`` at 5 and a
        query at 7 that returned ``b``, 5 for ``a``, although the query also read the whole namespace.
        """
        of_subject = [sought for sought in self.sought if sought.has(access.subject)]
        if access.subject.kind.parts_have_ids:
            parts = [sought for sought in of_subject if sought.part]
            of_subject = parts or of_subject
        covering = [sought for sought in of_subject if sought.covers(access)]
        return max((self.until.get(sought, 0) for sought in covering), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt(ReadData):
    """It looked at the data of fakes with their methods."""

    kind = "looked"
    looks: tuple[str, ...]

    def described(self, statement: str, lookups: Lookups, most: int) -> str:
        return f"The {statement} used {listed(list(self.looks), min(most, 3))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedData(ReadData):
    """The runner of a test in another process named the data, or values that rows returned or wrote."""

    kind = "compared"

    def described(self, statement: str, lookups: Lookups, most: int) -> str:
        return f"The {statement} compared {names_of(self.sought, lookups, most)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadByRows(ReadData):
    """It compared what calls of the application had read or written."""

    kind = "called"
    is_read: bool = True
    """Whether the calls read data, unlike calls that only wrote."""
    earlier: tuple[Sought, ...] = ()
    """What only equal requests before had read."""

    @property
    def read_values(self) -> bool:
        return self.is_read

    @property
    def own_data(self) -> list[Sought]:
        return [sought for sought in self.sought if sought not in self.earlier]

    def described(self, statement: str, lookups: Lookups, most: int) -> str:
        written = "" if self.is_read else "calls that wrote "
        text = f"The {statement} used {written}{names_of(self.own_data, lookups, most)}"
        if not self.earlier:
            return text
        earlier = names_of(self.earlier, lookups, most)
        return f"{text}; an earlier equal request had also read {earlier}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedByFunctions(ReadByRows):
    """It compared an object of the process, such as a list, that a function changed which received
    deliveries or made calls.
    """

    kind = "changed"
    by: tuple[str, ...]
    """The names of the functions."""

    def described(self, statement: str, lookups: Lookups, most: int) -> str:
        functions = ["a lambda" if name == "<lambda>" else f"{name}()" for name in self.by]
        who = listed(functions, 3) or "the test"
        names = names_of(self.own_data, lookups, most)
        if all(sought.subject.kind.is_delivered for sought in self.own_data):
            return f"The {statement} compared what {who} did with {names}"
        when = "reading" if self.is_read else "writing"
        return f"The {statement} compared what {who} changed when {when} {names}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAccess(ReadData):
    """The last row that accessed data: no statement failed, or what one read was not found."""

    kind = "last_call"
    is_of_statement: bool = True
    """Whether a statement failed, unlike in a test that passed with strict-mode violations."""

    @property
    def read_values(self) -> bool:
        return False

    def described(self, statement: str, lookups: Lookups, most: int) -> str:
        unknown = f"What the {statement} read is unknown"
        what = unknown if self.is_of_statement else "No statement failed"
        return f"{what}; > marks the last data accessed"


_UNWRITTEN: dict[UnwrittenKind, str] = {
    "never": "; no call here has written {}",
    "later": "; calls wrote {} only after this read",
}


def unwritten_text(read_data: ReadData, lookups: Lookups, most: int) -> str:
    """Return in words which of the data nothing has written; empty if something wrote all of it."""
    texts = []
    for kind in dict.fromkeys(read_data.unwritten.values()):
        data = [sought for sought, other in read_data.unwritten.items() if other == kind]
        is_all = len(data) == len(read_data.sought)
        texts.append(_UNWRITTEN[kind].format("it" if is_all else names_of(data, lookups, most)))
    return "".join(texts)


def names_of(data: Iterable[Sought], lookups: Lookups, most: int) -> str:
    """Return the names of data, with ids as short as in the rows. A subject that was read as a whole has
    the parts that were also read in parentheses.
    """
    data = list(data)
    parts = {whole.subject: [own.part for own in data if own.part and own.subject == whole.subject]
             for whole in data if not whole.part}  # fmt: skip
    names, has_kinds = [], len({sought.subject.kind for sought in data}) > 1
    for sought in data:
        name = sought.subject.name
        default = sought.subject.kind.unnamed or f"the {sought.subject.kind.name}"
        if not sought.part:
            also = f" (and its {listed(own, most)})" if (own := parts[sought.subject]) else ""
            kind = f"{sought.subject.kind.name} " if has_kinds and name else ""
            names.append(f"{kind}{lookups.short(name or default)}{also}")
        elif sought.subject not in parts:
            names.append(f"{lookups.short(name)} {sought.part}" if name else sought.part)
    return listed(names, most)
