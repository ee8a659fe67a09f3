"""The report of a test: its assembly, and the findings, which may explain a failure.

Findings are facts about what happened, never guesses. A detector yields findings, given an
`ObservedTest` and in most cases also one fake. The detectors of this module concern all services; a
service has its own in its ``findings`` module.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

from ..base_cloud import BaseCloud, closed_addresses
from ..core.calls import Action, Call, Entry, Event
from ..core.errors import chain_of, describe_error, report_hook_failure
from ..core.problems import Problem
from ..handle import Handle
from ..services import SERVICES, report_part
from .applications import ServedRequest
from .calls import (
    PUBLISHING,
    Lookups,
    error_of,
    executed_but_lost,
    has_full_answer,
    lines_of,
    lookups_of,
    records_of,
)
from .model import WEIGHT, Fake, Finding, Report, Row, Severity, Subject
from .rows import rows
from .values import NUMBER, Mask

MOST_UNFINISHED = 8
"""Maximum number of findings about unfinished work; further ones are only counted."""
_EXPLAINED = {"lost_update": "message_waits", "check_then_set": "message_waits",
              "scheduled_twice": "schedule_waits"}  # fmt: skip
"""Maps a finding to the unfinished work that it explains and that is therefore left out."""


def report_of(
    cloud: BaseCloud,
    *,
    test: str = "",
    failure: str = "",
    served: Sequence[ServedRequest] = (),
    idle_s: float | None = None,
    raised: BaseException | None = None,
    hints: Sequence[str] = (),
    log: str = "",
) -> Report:
    """Return the report of a test about one cloud, with credentials masked, given the values of a
    `Report` and an `ObservedTest`. A part that cannot be made becomes a line in ``failures``.
    """
    mask, lookups = Mask(cloud), Lookups()
    failures = list(dict.fromkeys(records_of(cloud).failures))
    every: list[Row] = []
    found: list[Finding] = []
    left: list[Finding] = []
    with report_hook_failure("the lookups failed", failures.append):
        lookups = lookups_of(cloud, list(cloud.journal.entries), mask)
    with report_hook_failure("the findings failed", failures.append):
        found = find(ObservedTest(cloud, lookups, idle_s, raised, served))
    with report_hook_failure("the calls cannot be shown", failures.append):
        every = rows(cloud, served=served, lookups=lookups, mask=mask)
    with report_hook_failure("what is unfinished cannot be shown", failures.append):
        left = unfinished(cloud, lookups, found)
    shared, closed = cloud._context, closed_addresses(cloud).items()
    # A delivery has two journal numbers.
    shown = ((one, row) for row in every for one in (row, row.delivery) if one is not None)
    masked = partial(_masked, mask=mask, numbers={one.number: row.number for one, row in shown})
    return Report(
        now_us=shared.clock.now_us(),
        clock=shared.clock.mode,
        seed=cloud.seed,
        test=test,
        failure=mask.text(failure),
        fakes=[
            *(Fake(one.name, one.service, one.url) for one in shared.handles.items),
            *(Fake(name, fixture, url, closed=True) for name, (fixture, url) in closed),
        ],
        rows=every,
        findings=list(map(masked, found)),
        unfinished=list(map(masked, left)),
        problems=list(map(masked, problems(cloud))),
        failures=list(map(mask.text, failures)),
        hints=list(map(mask.text, hints)),
        log=mask.text(log),
        lookups=lookups,
    )


def problems(cloud: BaseCloud) -> list[Finding]:
    """Return the strict-mode violations, counted if identical, and the rejected credentials."""
    groups: dict[object, list[Problem]] = {}
    for problem in cloud.problems():
        # Treat violations that differ only in the message ID as identical.
        facts = {name: value for name, value in problem.facts.items() if name != "message_id"}
        alike = problem.kind, repr(facts) if "message_id" in problem.facts else problem.text
        groups.setdefault(alike, []).append(problem)
    found = []
    for first, *others in groups.values():
        values = {"problem": first.kind, "text": first.text, "times": 1 + len(others)}
        found.append(Finding("problem", str(first.facts.get("handle") or ""), values=values))
    return [*found, *rejected(cloud)]


def rejected(
    cloud: BaseCloud,
    *,
    every_call: bool = False,
    meant: Callable[[Call], bool] = lambda call: False,
) -> Iterator[Finding]:
    """Yield a finding for each fake that answered 401, with the reasons; ``every_call``: and nothing
    else. ``meant`` calls are ignored.
    """
    every = [one for one in cloud.journal.entries if isinstance(one, Call)]
    for handle in cloud._context.handles.items:
        calls = [one for one in every if one.handle == handle.name]
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if every_call and len(wrong) < len(calls):
            continue
        wrong = [call for call in wrong if not meant(call)]
        if wrong:
            reasons: list[dict[str, str]] = []
            for call in wrong:
                if (reason := _credentials(call, cloud, handle)) not in reasons:
                    reasons.append(reason)
            values = {"rejected": len(wrong), "calls": len(calls), "reasons": reasons}
            yield Finding("rejected", handle.name, (wrong[-1].number,), values=values)


def _credentials(call: Call, cloud: BaseCloud, rejecting: Handle) -> dict[str, str]:
    given = call.request_headers.get("Authorization")
    if given is None:
        return {"kind": "query" if "_token=" in call.target else "none"}
    if given == f"Bearer {getattr(rejecting, 'read_only_token', None)}":
        return {"kind": "read_only"}
    for handle in cloud.fakes():
        if handle is not rejecting and handle.headers.get("Authorization") == given:
            return {"kind": "other", "other": handle.name}
    return {"kind": "unknown"}


def unfinished(
    cloud: BaseCloud, lookups: Lookups, explaining: Sequence[Finding] = ()
) -> list[Finding]:
    """Return the unfinished work that no finding explains, the most important first."""
    found: list[Finding] = []
    for handle in cloud._context.handles.items:
        detect = getattr(report_part(handle.fixture, "findings"), "unfinished", None)
        failures: list[str] = []
        with report_hook_failure("what waits cannot be shown", failures.append):
            found += detect(handle, lookups) if detect is not None else ()
        found += [Finding("failed", handle.name, values={"text": text}) for text in failures]
    left_out = {_EXPLAINED[one.kind] for one in explaining if one.kind in _EXPLAINED}
    found = [one for one in found if one.kind not in left_out]
    found.sort(key=lambda one: WEIGHT[one.severity])
    if (more := len(found) - MOST_UNFINISHED) > 0:
        found[MOST_UNFINISHED:] = [Finding("more", values={"count": more})]
    return found


def _masked(finding: Finding, mask: Mask, numbers: Mapping[int, int]) -> Finding:
    """Return a masked copy of a finding, with the numbers of rows in place of journal numbers."""
    rows = tuple(numbers.get(number, number) for number in finding.rows)
    values: dict[str, Any] = mask.value(finding.values)
    subjects = tuple(replace(one, name=mask.text(one.name)) for one in finding.subjects)
    return replace(finding, rows=rows, values=values, subjects=subjects)


# -- findings --------------------------------------------------------------------------------------

MOST = 10
"""Maximum number of findings in one report."""


def find(test: ObservedTest) -> list[Finding]:
    """Return the findings about a cloud: the most important first, then the newest."""
    found: list[Finding] = []
    for detector, given in _detectors(test):
        try:
            found += detector(test, *given)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = f"{detector.__name__} failed: {describe_error(error)}"
            found.append(Finding("failed", values={"text": text}))
    if any(one.severity == "cause" for one in found):
        # If a cause is known, a fake without calls is not worth reporting.
        found = [one for one in found if one.kind != "never_called"]
    # That a value was replaced is what the other findings explain.
    found.sort(
        key=lambda one: (WEIGHT[one.severity], one.kind == "value_lost", -max(one.rows, default=0))
    )
    return _causes_first(_once(found))[:MOST]


def _once(found: Iterable[Finding]) -> list[Finding]:
    """Return findings, with those merged that differ only in the numbers of their subjects, such as
    ``user:1`` and ``user:2``; the other subjects are ``likewise``.
    """
    merged: dict[object, Finding] = {}
    for one in found:
        same = one.kind, one.fake, one.severity, _facts_of(one)
        known = merged.setdefault(same, one)
        if known is one:
            continue
        subjects = tuple(dict.fromkeys((*known.subjects, *one.subjects)))
        others = [each.name for each in one.subjects[:1] if each not in known.subjects]
        others = [*known.values.get("likewise", ()), *others]
        merged[same] = replace(
            known, rows=tuple(dict.fromkeys((*known.rows, *one.rows))), subjects=subjects,
            values={**known.values, "likewise": others} if others else known.values,
        )  # fmt: skip
    return list(merged.values())


def _facts_of(one: Finding) -> str:
    """Return the facts of a finding without the names and the numbers of its subjects."""
    names = [subject.name for subject in one.subjects]
    facts = {name: value for name, value in one.values.items() if value not in names}
    numbers = {number for name in names for number in NUMBER.findall(name)}
    return NUMBER.sub(lambda found: "#" if found[0] in numbers else found[0], repr(facts))


_IDENTIFYING = {"key", "message", "schedule", "record"}
"""Kinds of subjects that have one cause at a time; a namespace or a group may have several."""


_EXCEPTIONS = {"error_logged", "failed_with_exception"}
"""Kinds of findings that say that a handler failed, and not why."""


def _causes_first(found: Sequence[Finding]) -> list[Finding]:
    """Return findings without the symptoms of others: hints about the row or the key of a cause, and
    exceptions in its row. Of several causes with a subject in common, the earliest comes first.
    """
    causes = [one for one in found if one.severity == "cause"]
    subjects = {subject for one in causes for subject in one.subjects}
    explained = {one for one in subjects if one.kind in _IDENTIFYING}
    decided = {number for one in causes for number in one.rows[:1]}
    reasons = {one.rows[:1] for one in causes if one.kind not in _EXCEPTIONS}
    ordered: list[Finding] = []
    for one in found:
        if one.severity != "cause" and (
            not decided.isdisjoint(one.rows[:1]) or not explained.isdisjoint(one.subjects)
        ):
            continue
        if one.kind in _EXCEPTIONS and one.rows[:1] in reasons:
            continue
        later = (at for at, other in enumerate(ordered) if _follows(other, one))
        ordered.insert(next(later, len(ordered)), one)
    return ordered


def _follows(other: Finding, one: Finding) -> bool:
    """Return whether a finding is as severe as another one about its subject, and decided later."""
    same = other.severity == one.severity and not set(other.subjects).isdisjoint(one.subjects)
    return same and one.rows[:1] < other.rows[:1]


def _detectors(test: ObservedTest) -> Iterator[tuple[Callable[..., Iterator[Finding]], list[Any]]]:
    """Yield each detector with its arguments after the test: a fake, or none for a whole journal."""
    used = {one.service for one in (*test.fakes, *test.entries)}
    of_tests: list[Callable[[ObservedTest], Iterator[Finding]]] = []
    for fixture, service in SERVICES.items():
        part = report_part(fixture, "findings") if used & {fixture, service.word} else None
        if part is not None:
            fakes = [one for one in test.fakes if one.fixture == fixture]
            yield from ((detector, [fake]) for detector in part.FINDINGS for fake in fakes)
            of_tests += part.OF_TEST
    yield from ((detector, []) for detector in (*of_tests, *_OF_ALL))


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
    """Return a finding about a subject, such as a key, of the kind ``what``.

    ``entry`` is the journal entry that decided it; ``values`` can include the severity.
    """
    subject = Subject(what, str(name), entry.handle)
    finding = about_entry(kind, entry, evidence, **{what: str(name), **values})
    return replace(finding, subjects=(subject,))


def with_message(finding: Finding, attempt: Event | None) -> Finding:
    """Return a finding that is also about the message of an attempt, and hides hints about it."""
    if attempt is None:
        return finding
    message = Subject("message", str(attempt.data.get("message_id")), attempt.handle)
    return replace(finding, subjects=(*finding.subjects, message))


about_group = partial(about, "group")
about_key = partial(about, "key")
about_message = partial(about, "message")
about_namespace = partial(about, "namespace")


def _as_known(entry: Entry) -> Entry:
    """Return a copy of a call without its answer, if a fault altered it and it shows no data."""
    if not isinstance(entry, Call) or entry.outcome != "altered":
        return entry
    known = copy.copy(entry)
    known.response_body = b""
    return known


class Write(NamedTuple):
    """A write to a store, with its journal number; ``adds``: repeating it changes the data again."""

    number: int
    name: str
    words: list[str]
    adds: bool


@dataclass
class ObservedTest:
    """A test as the detectors see it: the open fakes of its cloud, the journal, the wall-clock time in
    seconds that it waited, its exception, and the requests to the application.
    """

    cloud: BaseCloud
    lookups: Lookups
    idle_s: float | None = None
    raised: BaseException | None = None
    served: Sequence[ServedRequest] = ()
    commands: dict[object, list[Any]] = field(default_factory=dict, init=False)
    """The commands of key-value servers and of their databases (see `history()`)."""

    @cached_property
    def fakes(self) -> list[Any]:
        return list(self.cloud._context.handles.items)

    @cached_property
    def read_only_tokens(self) -> dict[str, str]:
        """The Authorization headers with read-only tokens, by fake."""
        tokens = {one.name: getattr(one, "read_only_token", None) for one in self.fakes}
        return {name: f"Bearer {token}" for name, token in tokens.items() if token is not None}

    @cached_property
    def entries(self) -> list[Entry]:
        # Leave out calls before a restored snapshot, which do not explain the current data.
        rewound = {one.name: getattr(one, "_rewound", 0) for one in self.fakes}
        every = self.cloud.journal.entries
        return [_as_known(one) for one in every if one.number > rewound.get(one.handle, 0)]

    @cached_property
    def calls(self) -> list[Call]:
        return [entry for entry in self.entries if isinstance(entry, Call)]

    @cached_property
    def tasks(self) -> dict[int, int]:
        """The task that sent each call, 0 if it was none, by the call's number; only known ones."""
        return {number: one.task for number, one in records_of(self.cloud).sites.items()}

    @cached_property
    def chain(self) -> list[BaseException]:
        """The exception of the test, with its causes."""
        return chain_of(self.raised)

    def failed_with(self, pattern: re.Pattern[str]) -> bool:
        """Return whether an exception of the test matches a pattern, or none is known."""
        return not self.chain or any(pattern.search(str(one)) for one in self.chain)

    def mentions(self, value: str) -> bool:
        """Return whether the message of a failed assertion contains a value as a whole word."""
        text = str(self.raised) if isinstance(self.raised, AssertionError) else ""
        words = rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\d)"
        return value in text and bool(re.search(words, text))

    def calls_of(self, handle: Any) -> list[Call]:
        return [call for call in self.calls if call.handle == handle.name]

    def actions_on(self, handle: Any) -> list[Action]:
        return [one for one in records_of(self.cloud).actions if one.handle == handle.name]

    def calls_to(self, service: str) -> Iterator[Call]:
        """Yield the calls to the fakes of a service, one fake after the other."""
        for handle in self.fakes:
            if handle.service == service:
                yield from self.calls_of(handle)

    @cached_property
    def attempts(self) -> list[Event]:
        """The delivery attempts during which the application did nothing else."""
        alone = (one for one in self.events("attempt") if one.data.get("alone"))
        return [one for one in alone if isinstance(one.data.get("began"), int)]

    @cached_property
    def published(self) -> list[Call]:
        """The publish requests to queues."""
        return [one for one in self.calls_to("queue") if one.route in PUBLISHING]

    def attempt_around(self, entry: Entry) -> Event | None:
        """Return the attempt during which an entry was recorded; None outside of attempts."""
        around = (one for one in self.attempts if one.data["began"] < entry.number < one.number)
        return next(around, None)

    @cached_property
    def writes(self) -> list[Write]:
        """The writes to the fakes that are stores."""
        parts = [(fake, report_part(fake.fixture, "findings")) for fake in self.fakes]
        stores = [(fake, part) for fake, part in parts if hasattr(part, "writes")]
        return sorted(one for fake, part in stores for one in part.writes(self, fake))

    def events(self, *kinds: str) -> list[Event]:
        return [e for e in self.entries if isinstance(e, Event) and e.kind in kinds]


Detector: TypeAlias = Callable[[ObservedTest, Any], Iterator[Finding]]  # given a fake


# -- detectors of all services ----------------------------------------------------------------------

_REJECTED = (400, 404, 409, 422)
_INCOMPLETE = {"altered", "broken off", "lost", "truncated"}
"""Outcomes of a call whose client did not receive the complete answer."""
_WAITING = {"consume", "fetch", "chat", "subscribe", "psubscribe", "monitor"}
"""Routes whose calls may wait, in wall-clock time."""
_BLOCKING = {"BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "BRPOPLPUSH",
             "WAIT", "WAITAOF", "DEBUG"}  # fmt: skip
"""Commands that may wait; those that wait only with the option BLOCK are recognized by it."""


def _names_of(call: Call) -> list[str]:
    """Return the commands of a call to a key-value server, or the route of any other call."""
    commands = call.facts.get("command")
    if isinstance(commands, list) and commands:
        return commands
    return [call.route or f"{call.method} {call.path}"]


def never_called(test: ObservedTest) -> Iterator[Finding]:
    """Find fakes without calls, if all calls of other fakes succeeded."""
    if not test.entries or any(map(_has_failed, test.entries)):
        return
    for handle in test.fakes:
        # A test that acts on a fake directly may need no client.
        if not len(handle.journal) and not test.actions_on(handle):
            yield Finding("never_called", handle.name, severity="hint")


def _has_failed(entry: Entry) -> bool:
    if isinstance(entry, Call):
        return entry.status is None or entry.status >= 400 or entry.outcome in _INCOMPLETE
    if entry.kind != "attempt":
        return False
    status = entry.data.get("status")
    return not isinstance(status, int) or status >= 300 or bool(entry.data.get("logged"))


def clock_frozen(test: ObservedTest) -> Iterator[Finding]:
    """Find wall-clock time that the process slept while the fake clock did not move."""
    if test.idle_s is None or test.idle_s < 1.0 or test.cloud.clock.mode != "frozen":
        return
    # A call that waits for data waits in the fake, in wall-clock time.
    if any(call.route in _WAITING or _blocks(call) for call in test.calls):
        return
    if test.entries and len({entry.at_us for entry in test.entries}) == 1:
        yield Finding("clock_frozen", values={"seconds": f"{test.idle_s:.1f}"})


def _blocks(call: Call) -> bool:
    return call.outcome != "answered" or any(
        line[0].upper() in _BLOCKING or "BLOCK" in map(str.upper, line) for line in lines_of(call)
    )


def error_not_seen(test: ObservedTest) -> Iterator[Finding]:
    """Find rejected requests whose error did not reach the test, which only failed an assertion."""
    if not test.chain or not all(isinstance(one, AssertionError) for one in test.chain):
        return
    read_only = test.read_only_tokens.values()
    # Clients try options that a server may not support, and scripts that it may not have.
    attempts = {*test.lookups.grouped_calls, *test.lookups.without_row}
    for call in test.calls:
        rejected = call.status in _REJECTED and call.fault is None and call.problem is None
        # The detector `read_only_token` reports writes with that token.
        if not rejected or call.request_headers.get("Authorization") in read_only:
            continue
        if call.number in attempts or _was_sent_with_source(call, test):
            continue
        status, error = error_of(call)
        values = {"call": _names_of(call)[0], "status": status, "error": error}
        found = about_entry("error_not_seen", call, severity="hint", **values)
        yield with_message(found, test.attempt_around(call))


def _was_sent_with_source(call: Call, test: ObservedTest) -> bool:
    """Return whether a script that the server did not know was sent again with its source."""
    return b"NOSCRIPT" in call.response_body and any(
        set(later.facts.get("command") or ()) & {"EVAL", "SCRIPT LOAD"}
        for later in test.calls
        if later.handle == call.handle and later.number > call.number
    )


def read_only_token(test: ObservedTest) -> Iterator[Finding]:
    """Find writes that were sent with the read-only token."""
    tokens = test.read_only_tokens
    for call in test.calls:
        rejected = call.status in (400, 401, 403) and call.fault is None
        given = call.request_headers.get("Authorization")
        if rejected and given is not None and given == tokens.get(call.handle):
            yield about_entry("read_only_token", call, command=_names_of(call)[0])


def repeated_after_lost_answer(test: ObservedTest) -> Iterator[Finding]:
    """Find requests that were carried out, answered with an error or not at all, and repeated."""
    # The ``addition()`` of a service returns what a request adds to its data, and names that keep a
    # repetition from adding it again, such as IDs of records; None for all other requests.
    lost: dict[str, tuple[Call, set[str]]] = {}
    for call in test.calls:
        part = report_part(call.service, "findings")
        added = part.addition(call) if hasattr(part, "addition") and not call.cut else None
        if added is None:
            continue
        content, names = added
        same = repr((call.handle, call.route, content))
        if executed_but_lost(call) or _was_in_part(call):
            lost.setdefault(same, (call, names))
        elif has_full_answer(call) and call.reached and same in lost:
            first, known = lost.pop(same)
            if names.isdisjoint(known):
                sent = _names_of(call)
                found = about_entry(
                    "repeated_after_lost_answer", call, [first.number],
                    service=call.service, call=sent[0] if len(sent) == 1 else call.route,
                    status=first.status if (first.status or 0) >= 400 else 0,
                    in_part=_was_in_part(first),
                )  # fmt: skip
                yield replace(found, subjects=tuple(part.subjects(call)))


def _was_in_part(call: Call) -> bool:
    return any(one["kind"] == "partial_produce" and one["keep"] != "0" for one in call.faults)


_OF_ALL = (
    repeated_after_lost_answer,
    error_not_seen, never_called, clock_frozen,
    read_only_token,
)  # fmt: skip
