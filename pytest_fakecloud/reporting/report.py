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

from ..cloud.base import BaseCloud, closed_addresses
from ..cloud.fake import Fake
from ..cloud.services import SERVICES, report_part
from ..core.calls import Action, Call, Entry, Event
from ..core.errors import chain_of, describe_error, report_hook_failure
from ..core.violations import Violation
from ..queue.accesses import PUBLISHING
from .applications import ServedRequest
from .calls import (
    Lookups,
    error_of,
    executed_but_lost,
    has_full_answer,
    lines_of,
    lookups_of,
    records_of,
)
from .history import history_of
from .model import WEIGHT, Finding, Report, ReportedFake, ReportRow, ReportSubject, Severity
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
    every: list[ReportRow] = []
    findings: list[Finding] = []
    unfinished_findings: list[Finding] = []
    with report_hook_failure("the lookups failed", failures.append):
        lookups = lookups_of(cloud, list(cloud.journal.entries), mask)
    test_data = ObservedTest(cloud, lookups, idle_s, raised, served)
    with report_hook_failure("the findings failed", failures.append):
        findings = find(test_data)
    with report_hook_failure("the calls cannot be shown", failures.append):
        every = rows(cloud, served=served, lookups=lookups, mask=mask)
    history = None
    if raised is not None:
        with report_hook_failure("the history cannot be shown", failures.append):
            history = history_of(test_data, every)
    with report_hook_failure("what is unfinished cannot be shown", failures.append):
        unfinished_findings = unfinished(cloud, lookups, findings)
    shared, closed = cloud._context, closed_addresses(cloud).items()
    # A delivery has two journal numbers.
    shown = ((entry, row) for row in every for entry in (row, row.delivery) if entry is not None)
    masked = partial(_masked, mask=mask, numbers={entry.number: row.number for entry, row in shown})
    return Report(
        now_us=shared.clock.now_us(),
        clock=shared.clock.mode,
        seed=cloud.seed,
        test=test,
        failure=mask.text(failure),
        fakes=[
            *(ReportedFake(fake.name, fake.service, fake.url) for fake in shared.fakes.items),
            *(ReportedFake(name, fixture, url, closed=True) for name, (fixture, url) in closed),
        ],
        rows=every,
        findings=list(map(masked, findings)),
        unfinished=list(map(masked, unfinished_findings)),
        violations=list(map(masked, violations(cloud))),
        failures=list(map(mask.text, failures)),
        hints=list(map(mask.text, hints)),
        log=mask.text(log),
        lookups=lookups,
        history=history,
    )


def violations(cloud: BaseCloud) -> list[Finding]:
    """Return the strict-mode violations, counted if identical, and the rejected credentials."""
    groups: dict[object, list[Violation]] = {}
    for violation in cloud.violations():
        # Treat violations that differ only in the message ID as identical.
        facts = {name: value for name, value in violation.facts.items() if name != "message_id"}
        alike = violation.kind, repr(facts) if "message_id" in violation.facts else violation.text
        groups.setdefault(alike, []).append(violation)
    violations = []
    for first, *others in groups.values():
        values = {"violation": first.kind, "text": first.text, "times": 1 + len(others)}
        violations.append(Finding("violation", str(first.facts.get("fake") or ""), values=values))
    return [*violations, *rejected(cloud)]


def rejected(
    cloud: BaseCloud,
    *,
    every_call: bool = False,
    meant: Callable[[Call], bool] = lambda call: False,
) -> Iterator[Finding]:
    """Yield a finding for each fake that answered 401, with the reasons; ``every_call``: and nothing
    else. ``meant`` calls are ignored.
    """
    every = [entry for entry in cloud.journal.entries if isinstance(entry, Call)]
    for fake in cloud._context.fakes.items:
        calls = [call for call in every if call.fake == fake.name]
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if every_call and len(wrong) < len(calls):
            continue
        wrong = [call for call in wrong if not meant(call)]
        if wrong:
            reasons: list[dict[str, str]] = []
            for call in wrong:
                if (reason := _credentials(call, cloud, fake)) not in reasons:
                    reasons.append(reason)
            values = {"rejected": len(wrong), "calls": len(calls), "reasons": reasons}
            yield Finding("rejected", fake.name, (wrong[-1].number,), values=values)


def _credentials(call: Call, cloud: BaseCloud, rejecting: Fake) -> dict[str, str]:
    credentials = call.request_headers.get("Authorization")
    if credentials is None:
        return {"kind": "query" if "_token=" in call.target else "none"}
    if credentials == f"Bearer {getattr(rejecting, 'read_only_token', None)}":
        return {"kind": "read_only"}
    for fake in cloud.fakes():
        if fake is not rejecting and fake.headers.get("Authorization") == credentials:
            return {"kind": "other", "other": fake.name}
    return {"kind": "unknown"}


def unfinished(
    cloud: BaseCloud, lookups: Lookups, explaining: Sequence[Finding] = ()
) -> list[Finding]:
    """Return the unfinished work that no finding explains, the most important first."""
    findings: list[Finding] = []
    for fake in cloud._context.fakes.items:
        detect = getattr(report_part(fake.fixture, "findings"), "unfinished", None)
        failures: list[str] = []
        with report_hook_failure("what waits cannot be shown", failures.append):
            findings += detect(fake, lookups) if detect is not None else ()
        findings += [Finding("failed", fake.name, values={"text": text}) for text in failures]
    left_out = {_EXPLAINED[finding.kind] for finding in explaining if finding.kind in _EXPLAINED}
    findings = [finding for finding in findings if finding.kind not in left_out]
    findings.sort(key=lambda finding: WEIGHT[finding.severity])
    if (more := len(findings) - MOST_UNFINISHED) > 0:
        findings[MOST_UNFINISHED:] = [Finding("more", values={"count": more})]
    return findings


def _masked(finding: Finding, mask: Mask, numbers: Mapping[int, int]) -> Finding:
    """Return a masked copy of a finding, with the numbers of rows in place of journal numbers."""
    rows = tuple(numbers.get(number, number) for number in finding.rows)
    values: dict[str, Any] = mask.value(finding.values)
    subjects = tuple(replace(subject, name=mask.text(subject.name)) for subject in finding.subjects)
    return replace(finding, rows=rows, values=values, subjects=subjects)


# -- findings --------------------------------------------------------------------------------------

MOST = 10
"""Maximum number of findings in one report."""


def find(test: ObservedTest) -> list[Finding]:
    """Return the findings about a cloud: the most important first, then the newest."""
    findings: list[Finding] = []
    for detector, arguments in _detectors(test):
        try:
            findings += detector(test, *arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = f"{detector.__name__} failed: {describe_error(error)}"
            findings.append(Finding("failed", values={"text": text}))
    if any(finding.severity == "cause" for finding in findings):
        # If a cause is known, a fake without calls is not worth reporting.
        findings = [finding for finding in findings if finding.kind != "never_called"]
    # That a value was replaced is what the other findings explain.
    findings.sort(
        key=lambda finding: (
            WEIGHT[finding.severity],
            finding.kind == "value_lost",
            -max(finding.rows, default=0),
        )
    )
    return _causes_first(_once(findings))[:MOST]


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, with those merged that differ only in the numbers of their subjects, such as
    ``user:1`` and ``user:2``; the other subjects are ``likewise``.
    """
    merged: dict[object, Finding] = {}
    for finding in findings:
        same = finding.kind, finding.fake, finding.severity, _facts_of(finding)
        first = merged.setdefault(same, finding)
        if first is finding:
            continue
        subjects = tuple(dict.fromkeys((*first.subjects, *finding.subjects)))
        others = [subject.name for subject in finding.subjects[:1] if subject not in first.subjects]
        others = [*first.values.get("likewise", ()), *others]
        merged[same] = replace(
            first, rows=tuple(dict.fromkeys((*first.rows, *finding.rows))), subjects=subjects,
            values={**first.values, "likewise": others} if others else first.values,
        )  # fmt: skip
    return list(merged.values())


def _facts_of(finding: Finding) -> str:
    """Return the facts of a finding without the names and the numbers of its subjects."""
    names = [subject.name for subject in finding.subjects]
    facts = {name: value for name, value in finding.values.items() if value not in names}
    numbers = {number for name in names for number in NUMBER.findall(name)}
    return NUMBER.sub(lambda number: "#" if number[0] in numbers else number[0], repr(facts))


_IDENTIFYING = {"key", "message", "schedule", "record"}
"""Kinds of subjects that have one cause at a time; a namespace or a group may have several."""


_EXCEPTIONS = {"error_logged", "failed_with_exception"}
"""Kinds of findings that say that a handler failed, and not why."""


def _causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings without the symptoms of others: hints about the row or the key of a cause, and
    exceptions in its row. Of several causes with a subject in common, the earliest comes first.
    """
    causes = [finding for finding in findings if finding.severity == "cause"]
    subjects = {subject for finding in causes for subject in finding.subjects}
    explained = {subject for subject in subjects if subject.kind in _IDENTIFYING}
    decided = {number for finding in causes for number in finding.rows[:1]}
    reasons = {finding.rows[:1] for finding in causes if finding.kind not in _EXCEPTIONS}
    ordered: list[Finding] = []
    for finding in findings:
        if finding.severity != "cause" and (
            not decided.isdisjoint(finding.rows[:1]) or not explained.isdisjoint(finding.subjects)
        ):
            continue
        if finding.kind in _EXCEPTIONS and finding.rows[:1] in reasons:
            continue
        later = (at for at, other in enumerate(ordered) if _follows(other, finding))
        ordered.insert(next(later, len(ordered)), finding)
    return ordered


def _follows(other: Finding, finding: Finding) -> bool:
    """Return whether a finding is as severe as another one about its subject, and decided later."""
    same = other.severity == finding.severity and not set(other.subjects).isdisjoint(
        finding.subjects
    )
    return same and finding.rows[:1] < other.rows[:1]


def _detectors(test: ObservedTest) -> Iterator[tuple[Callable[..., Iterator[Finding]], list[Any]]]:
    """Yield each detector with its arguments after the test: a fake, or none for a whole journal."""
    used = {item.service for item in (*test.fakes, *test.entries)}
    of_tests: list[Callable[[ObservedTest], Iterator[Finding]]] = []
    for fixture, service in SERVICES.items():
        part = report_part(fixture, "findings") if used & {fixture, service.word} else None
        if part is not None:
            fakes = [fake for fake in test.fakes if fake.fixture == fixture]
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
    return Finding(kind, entry.fake, rows, severity=severity, values=values)


def about(
    what: str, kind: str, entry: Entry, name: object, evidence: Iterable[int] = (), /, **values: Any
) -> Finding:
    """Return a finding about a subject, such as a key, of the kind ``what``.

    ``entry`` is the journal entry that decided it; ``values`` can include the severity.
    """
    subject = ReportSubject(what, str(name), entry.fake)
    finding = about_entry(kind, entry, evidence, **{what: str(name), **values})
    return replace(finding, subjects=(subject,))


def with_message(finding: Finding, attempt: Event | None) -> Finding:
    """Return a finding that is also about the message of an attempt, and hides hints about it."""
    if attempt is None:
        return finding
    message = ReportSubject("message", str(attempt.data.get("message_id")), attempt.fake)
    return replace(finding, subjects=(*finding.subjects, message))


about_group = partial(about, "group")
about_key = partial(about, "key")
about_message = partial(about, "message")
about_namespace = partial(about, "namespace")


def _as_known(entry: Entry) -> Entry:
    """Return a copy of a call without its answer, if a fault altered it and it shows no data."""
    if not isinstance(entry, Call) or entry.outcome != "altered":
        return entry
    copied_call = copy.copy(entry)
    copied_call.response_body = b""
    return copied_call


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
        return list(self.cloud._context.fakes.items)

    @cached_property
    def read_only_tokens(self) -> dict[str, str]:
        """The Authorization headers with read-only tokens, by fake."""
        tokens = {fake.name: getattr(fake, "read_only_token", None) for fake in self.fakes}
        return {name: f"Bearer {token}" for name, token in tokens.items() if token is not None}

    @cached_property
    def entries(self) -> list[Entry]:
        # Leave out calls before a restored snapshot, which do not explain the current data.
        rewound = {fake.name: getattr(fake, "_rewound", 0) for fake in self.fakes}
        every = self.cloud.journal.entries
        return [_as_known(entry) for entry in every if entry.number > rewound.get(entry.fake, 0)]

    @cached_property
    def calls(self) -> list[Call]:
        return [entry for entry in self.entries if isinstance(entry, Call)]

    @cached_property
    def tasks(self) -> dict[int, int]:
        """The task that sent each call, 0 if it was none, by the call's number; only known ones."""
        return {number: site.task for number, site in records_of(self.cloud).sites.items()}

    @cached_property
    def chain(self) -> list[BaseException]:
        """The exception of the test, with its causes."""
        return chain_of(self.raised)

    def failed_with(self, pattern: re.Pattern[str]) -> bool:
        """Return whether an exception of the test matches a pattern, or none is known."""
        return not self.chain or any(pattern.search(str(error)) for error in self.chain)

    def mentions(self, value: str) -> bool:
        """Return whether the message of a failed assertion contains a value as a whole word."""
        text = str(self.raised) if isinstance(self.raised, AssertionError) else ""
        words = rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\d)"
        return value in text and bool(re.search(words, text))

    def calls_of(self, fake: Any) -> list[Call]:
        return [call for call in self.calls if call.fake == fake.name]

    def actions_on(self, fake: Any) -> list[Action]:
        return [action for action in records_of(self.cloud).actions if action.fake == fake.name]

    def calls_to(self, service: str) -> Iterator[Call]:
        """Yield the calls to the fakes of a service, one fake after the other."""
        for fake in self.fakes:
            if fake.service == service:
                yield from self.calls_of(fake)

    @cached_property
    def attempts(self) -> list[Event]:
        """The delivery attempts during which the application did nothing else."""
        alone = (event for event in self.events("attempt") if event.data.get("alone"))
        return [event for event in alone if isinstance(event.data.get("began"), int)]

    @cached_property
    def published(self) -> list[Call]:
        """The publish requests to queues."""
        return [call for call in self.calls_to("queue") if call.route in PUBLISHING]

    def attempt_around(self, entry: Entry) -> Event | None:
        """Return the attempt during which an entry was recorded; None outside of attempts."""
        around = (
            attempt
            for attempt in self.attempts
            if attempt.data["began"] < entry.number < attempt.number
        )
        return next(around, None)

    @cached_property
    def writes(self) -> list[Write]:
        """The writes to the fakes that are stores."""
        parts = [(fake, report_part(fake.fixture, "findings")) for fake in self.fakes]
        stores = [(fake, part) for fake, part in parts if hasattr(part, "writes")]
        return sorted(write for fake, part in stores for write in part.writes(self, fake))

    def events(self, *kinds: str) -> list[Event]:
        return [e for e in self.entries if isinstance(e, Event) and e.kind in kinds]


Detector: TypeAlias = Callable[[ObservedTest, Any], Iterator[Finding]]  # given a fake


# -- detectors of all services ----------------------------------------------------------------------

_REJECTED = (400, 404, 409, 422)
_INCOMPLETE = {"altered", "broken off", "lost", "truncated"}
"""Outcomes of a call whose client did not receive the complete answer."""
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
    for fake in test.fakes:
        # A test that acts on a fake directly may need no client.
        if not len(fake.journal) and not test.actions_on(fake):
            yield Finding("never_called", fake.name, severity="hint")


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
    waiting = {r.name for fake in test.fakes for r in fake._app.table.routes if r.lingers}
    if any(call.route in waiting or _blocks(call) for call in test.calls):
        return
    if test.entries and len({entry.at_us for entry in test.entries}) == 1:
        yield Finding("clock_frozen", values={"seconds": f"{test.idle_s:.1f}"})


def _blocks(call: Call) -> bool:
    return call.outcome != "answered" or any(
        line[0].upper() in _BLOCKING or "BLOCK" in map(str.upper, line) for line in lines_of(call)
    )


def error_not_seen(test: ObservedTest) -> Iterator[Finding]:
    """Find rejected requests whose error did not reach the test, which only failed an assertion."""
    if not test.chain or not all(isinstance(error, AssertionError) for error in test.chain):
        return
    read_only = test.read_only_tokens.values()
    # Clients try options that a server may not support, and scripts that it may not have.
    attempts = {*test.lookups.grouped_calls, *test.lookups.without_row}
    for call in test.calls:
        rejected = call.status in _REJECTED and call.fault is None and call.violation is None
        # The detector `read_only_token` reports writes with that token.
        if not rejected or call.request_headers.get("Authorization") in read_only:
            continue
        if call.number in attempts or _was_sent_with_source(call, test):
            continue
        status, error = error_of(call)
        values = {"call": _names_of(call)[0], "status": status, "error": error}
        finding = about_entry("error_not_seen", call, severity="hint", **values)
        yield with_message(finding, test.attempt_around(call))


def _was_sent_with_source(call: Call, test: ObservedTest) -> bool:
    """Return whether a script that the server did not know was sent again with its source."""
    return b"NOSCRIPT" in call.response_body and any(
        set(later.facts.get("command") or ()) & {"EVAL", "SCRIPT LOAD"}
        for later in test.calls
        if later.fake == call.fake and later.number > call.number
    )


def read_only_token(test: ObservedTest) -> Iterator[Finding]:
    """Find writes that were sent with the read-only token."""
    tokens = test.read_only_tokens
    for call in test.calls:
        rejected = call.status in (400, 401, 403) and call.fault is None
        credentials = call.request_headers.get("Authorization")
        if rejected and credentials is not None and credentials == tokens.get(call.fake):
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
        same = repr((call.fake, call.route, content))
        if executed_but_lost(call) or _was_in_part(call):
            lost.setdefault(same, (call, names))
        elif has_full_answer(call) and call.reached and same in lost:
            first, first_names = lost.pop(same)
            if names.isdisjoint(first_names):
                sent = _names_of(call)
                finding = about_entry(
                    "repeated_after_lost_answer", call, [first.number],
                    service=call.service, call=sent[0] if len(sent) == 1 else call.route,
                    status=first.status if (first.status or 0) >= 400 else 0,
                    in_part=_was_in_part(first),
                )  # fmt: skip
                yield replace(finding, subjects=tuple(part.subjects(call)))


def _was_in_part(call: Call) -> bool:
    return any(fault["kind"] == "partial_produce" and fault["keep"] != "0" for fault in call.faults)


_OF_ALL = (
    repeated_after_lost_answer,
    error_not_seen, never_called, clock_frozen,
    read_only_token,
)  # fmt: skip
