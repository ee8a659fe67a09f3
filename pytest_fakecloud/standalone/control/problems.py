"""What is wrong: the causes of violations, the dead letters, and the failed calls that count no more."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ...cloud.cloud import Cloud
from ...cloud.fake import Fake
from ...cloud.services import data_module, find
from ...core.calls import Call, Entry, Event
from ...core.hosts import parts_of_url
from ...core.violations import Violation
from ...inspect.data import OpenLetter
from .resends import repeated

_YET_TO_COME = ("unused_fault", "unmet")
"""Kinds of violations that may still be avoided: the fault may fire, and the answer may be given."""


class Cause(NamedTuple):
    """Violations with the same cause, and what else it has caused: rows and dead letters."""

    violations: Sequence[Violation]
    rows: Sequence[int]
    letters: Sequence[OpenLetter]

    @property
    def kind(self) -> str:
        return self.violations[0].kind

    @property
    def origin(self) -> str:
        """The origin of the address that the violations name, such as ``https://app.example``."""
        return _origin_of(self.violations[0])


def causes(cloud: Cloud, letters: Sequence[OpenLetter]) -> Iterator[Cause]:
    """Yield the violations by causes (one kind, fake and site, whatever the message or run), each with
    the open dead letters that it has caused.
    """
    rows: dict[Hashable, list[int]] = {}
    for entry in cloud.journal.entries:
        for subject in _subjects_of(entry):
            rows.setdefault(subject, []).append(entry.number)
    for group in _by_cause(cloud):
        subjects = _subjects_of_violations(group)
        numbers = {number for subject in subjects for number in rows.get(subject, ())}
        caused = {
            letter for letter in letters if not subjects.isdisjoint(_subjects_of_letter(letter))
        }
        yield Cause(group, sorted(numbers), sorted(caused))


def is_answered(cloud: Cloud, cause: Cause) -> bool:
    """Return whether destinations answer by now all deliveries that nothing answered."""
    name = cause.violations[0].facts.get("fake")
    return cause.kind == "unstubbed" and all(
        data_module(fake.fixture).is_answered(fake, str(violation.facts.get("url", "")))
        for fake in _queues(cloud) if fake.name == name for violation in cause.violations
    )  # fmt: skip


def count(cloud: Cloud) -> int:
    """Return the number of problems: causes of violations, and dead letters with another cause."""
    groups = _by_cause(cloud)
    subjects = {subject for group in groups for subject in _subjects_of_violations(group)}
    apart = [
        letter for letter in open_letters(cloud) if subjects.isdisjoint(_subjects_of_letter(letter))
    ]
    return len(groups) + len(apart)


def violations(cloud: Cloud) -> list[Violation]:
    """Return the violations that have happened."""
    return [violation for violation in cloud.violations() if violation.kind not in _YET_TO_COME]


def open_letters(cloud: Cloud) -> list[OpenLetter]:
    """Return the dead letters of all queues whose messages were not delivered since."""
    return [letter for fake in _queues(cloud) for letter in open_letters_of(cloud, fake)]


def open_letters_of(cloud: Cloud, fake: Fake) -> list[OpenLetter]:
    """Return the dead letters of a fake whose messages were not delivered since, if need be by other
    messages that repeat them.
    """
    if not find(fake.fixture).delivers or not data_module(fake.fixture).has_dead_letters(fake):
        return []
    letters: list[OpenLetter] = data_module(fake.fixture).open_letters(
        fake, fake.name, repeated(cloud, fake)
    )
    return letters


def settled(cloud: Cloud) -> Iterator[int]:
    """Yield the numbers of the attempts whose message was delivered, by itself or by another that
    repeats it.
    """
    for fake in _queues(cloud):
        delivered = data_module(fake.fixture).delivered(fake, repeated(cloud, fake))
        for entry in cloud.journal.entries:
            if (
                isinstance(entry, Event)
                and (entry.fake, entry.kind) == (fake.name, "attempt")
                and entry.data.get("message_id") in delivered
            ):
                yield entry.number


def _queues(cloud: Cloud) -> list[Fake]:
    return [fake for fake in cloud.fakes() if find(fake.fixture).delivers]


def _by_cause(cloud: Cloud) -> list[list[Violation]]:
    by_cause: dict[Hashable, list[Violation]] = {}
    for violation in violations(cloud):
        by_cause.setdefault(_cause_of(violation), []).append(violation)
    return list(by_cause.values())


def _cause_of(violation: Violation) -> Hashable:
    facts = violation.facts
    site = _origin_of(violation)
    if not site and not facts.keys() & {"message_id", "run_id"}:
        site = violation.text
    return violation.kind, facts.get("fake"), site


def _origin_of(violation: Violation) -> str:
    """Return the origin of the address that a violation names, without a user; empty without one."""
    parts = parts_of_url(str(violation.facts.get("url", "")))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""


def _subjects_of_violations(group: Iterable[Violation]) -> set[tuple[str, ...]]:
    """Return the messages, the runs and the paths that violations name, with their fakes."""
    return {
        (name, str(violation.facts.get("fake")), str(violation.facts[name]))
        for violation in group
        for name in ("message_id", "run_id", "path")
        if violation.facts.get(name)
    }


def _subjects_of_letter(letter: OpenLetter) -> list[tuple[str, ...]]:
    run = [("run_id", letter.fake, letter.run_id)] if letter.run_id else []
    return [("message_id", letter.fake, letter.message_id), *run]


def _subjects_of(entry: Entry) -> list[tuple[str, ...]]:
    """Return the path of a call, or the message and the run of a delivery attempt."""
    if isinstance(entry, Call):
        return [("path", entry.fake, entry.target.partition("?")[0])]
    if entry.kind != "attempt":
        return []
    names = {"message_id": entry.data.get("message_id"), "run_id": entry.data.get("run")}
    return [(name, entry.fake, str(value)) for name, value in names.items() if value]
