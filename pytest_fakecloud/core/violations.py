"""Strict-mode violations: their kinds and facts, and those that a test allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from .errors import ContractError, describe_error, formatted, shown, unknown_name
from .field_types import MAPPING, MESSAGE_ID, METHOD, PATH, TEXT, URL, OneOf
from .matching import Field, Query

_LONGEST_VIOLATION = 20_000  # characters of a violation's text


class Violation(NamedTuple):
    """A strict-mode violation: the reason why a strict test fails.

    ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet``,
    ``rejected_step``, ``no_workflow``, ``assertion`` or ``undelivered``. ``text`` says what
    happened and the nearest valid alternative; its first line ends with the call of ``allow()`` that
    allows it. ``what`` is the part of it that is no Python, for other languages. ``allow()`` matches
    the ``facts``.
    """

    kind: str
    text: str
    facts: dict[str, Any]
    exception: BaseException | None = None
    what: str = ""


def without_message(violation: Violation) -> object:
    """Return what is equal in violations that differ only in the message that they are about."""
    facts = {name: value for name, value in violation.facts.items() if name != "message_id"}
    is_about_message = "message_id" in violation.facts
    return violation.kind, repr(facts) if is_about_message else violation.text


class Violations(list[Violation]):
    """The newest ``keep`` strict-mode violations of one cloud, in order of occurrence.

    Only ``keep_exceptions`` exceptions keep their frames, because frames keep much else alive.
    """

    keep: int = 10_000
    keep_exceptions: int = 100

    def report(
        self,
        kind: str,
        text: str,
        *,
        advice: str = "",
        exception: BaseException | None = None,
        **facts: Any,
    ) -> Violation:
        """Add a violation; ``advice`` says in Python what to do, and is added to the text."""
        return self._add(new_violation(kind, text, facts, exception, advice))

    def _add(self, violation: Violation) -> Violation:
        exception = violation.exception
        if exception is not None:
            framed = [
                violation
                for violation in self
                if violation.exception and violation.exception.__traceback__
            ]
            if len(framed) >= self.keep_exceptions:
                exception.__traceback__ = exception.__context__ = exception.__cause__ = None
        del self[: max(0, len(self) - self.keep + 1)]
        self.append(violation)
        return violation

    def dismiss(self, texts: Collection[str]) -> None:
        """Remove the violations with these texts. One that occurs again is added again."""
        for violation in [violation for violation in self if violation.text in texts]:
            # Another request may dismiss it at the same time.
            with suppress(ValueError):
                self.remove(violation)

    def report_raised(self, error: BaseException, where: str, **facts: Any) -> None:
        """Record an exception that a callback of the test raised; ``where`` begins the text."""
        self._add(raised_violation(error, where, **facts))

    def report_bug(self, error: BaseException, what: str, **facts: Any) -> None:
        """Record an exception that this package should not raise; ``what`` begins the text."""
        text = (
            f"{what}: {shown(error)}\n"
            "This is a bug of pytest-fakecloud, please report it with the traceback:\n"
            f"{formatted(error)}"
        )
        self.report("bug", text, exception=error, **facts)


def new_violation(
    kind: str,
    text: str,
    facts: dict[str, Any],
    exception: BaseException | None = None,
    advice: str = "",
) -> Violation:
    """Return a violation; ``text`` says what happened, ``advice`` what to do about it in Python."""
    what = shortened(text, _LONGEST_VIOLATION)
    whole = with_allowance(f"{what} {advice}" if advice else what, kind, facts)
    return Violation(kind, whole, facts, exception, what)


def with_allowance(text: str, kind: str, facts: Mapping[str, Any]) -> str:
    """Add the call that allows a violation, as Python code, to the end of its text; for a bug, to the
    end of its first line, which a traceback follows.
    """
    name = next((name for name in _IDENTIFYING if _matches(kind, name, facts)), None)
    argument = ""
    if name is not None:
        value = str(facts[name])
        is_plain = value.isprintable() and '"' not in value and "\\" not in value
        argument = f', {name}="{value}"' if is_plain else f", {name}={value!r}"
    first, newline, rest = text.partition("\n") if kind == "bug" else (text.rstrip(), "", "")
    return f'{first} (if intended: fakecloud.allow("{kind}"{argument})){newline}{rest}'


def _matches(kind: str, name: str, facts: Mapping[str, Any]) -> bool:
    """Return whether ``allow()`` with a fact's value matches the facts. Not every path can be given."""
    fields = ALLOWABLE.get(kind, {})
    if name not in fields or not facts.get(name):
        return False
    try:
        return Query({name: facts[name]}, fields, "violation")(facts)
    except ContractError:
        return False


def raised_violation(error: BaseException, where: str, **facts: Any) -> Violation:
    """Return the violation that ``Violations.report_raised()`` records."""
    text = f"{where}: a callback of the test raised {describe_error(error)}"
    return new_violation("assertion", text, facts, error)


def shortened(text: str, most: int = 2000) -> str:
    """Cut a string from an untrusted client to a length that is safe to keep."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


_KEY = Field(TEXT, several=True, optional=False)
"""The keys of the commands in the request that caused a violation."""
VIOLATION_KINDS: Mapping[str, Mapping[str, Field]] = {
    "unrouted": {"path": Field(PATH), "method": Field(METHOD), "fake": Field(TEXT)},
    "unstubbed": {"url": Field(URL), "message_id": Field(MESSAGE_ID), "fake": Field(TEXT)},
    "bug": {"path": Field(PATH), "key": _KEY, "fake": Field(TEXT)},
    "unused_fault": {"fake": Field(TEXT)},
    "unmet": {"fake": Field(TEXT)},
    "rejected_step": {"run_id": Field(TEXT), "url": Field(URL), "fake": Field(TEXT)},
    "assertion": {"key": _KEY, "fake": Field(TEXT)},
}
"""The kinds of strict-mode violations, each with the facts that ``allow()`` can match."""
NAMED_KINDS: Mapping[str, Mapping[str, Field]] = {
    "no_workflow": {"run_id": Field(TEXT), "url": Field(URL), "fake": Field(TEXT)},
    "undelivered": {"fake": Field(TEXT)},
}
"""Kinds for which a test fails only if it names them in ``strict=``."""
ALLOWABLE: Mapping[str, Mapping[str, Field]] = {
    **VIOLATION_KINDS,
    **NAMED_KINDS,
    "refused": {"path": Field(PATH), "method": Field(METHOD), "fake": Field(TEXT)},
}
"""The kinds that ``allow()`` accepts. ``refused`` warns of a client that received only 401s."""
_IDENTIFYING = ("path", "url", "fake")
"""Facts that identify a violation in the next run, too, the most specific first."""
VIOLATION_FIELDS: Mapping[str, Field] = {
    "kind": Field(OneOf("kind of violation", [*VIOLATION_KINDS, *NAMED_KINDS])),
    "text": Field(TEXT),
    "facts": Field(MAPPING),
    "exception": Field(),
    "what": Field(TEXT),
}


class Allowances(list[tuple[str, Query]]):
    """The violations that ``allow()`` covers: their kinds, with conditions on their facts."""

    def add(self, kind: str, where: Mapping[str, object]) -> None:
        """Allow a kind of violation, or only those whose facts match ``where``."""
        if not isinstance(kind, str) or kind not in ALLOWABLE:
            raise ContractError(unknown_name("kind of violation", kind, ALLOWABLE))
        self.append((kind, Query(where, ALLOWABLE[kind], f"violation of kind {kind!r}")))

    def covers(self, kind: str, facts: Mapping[str, Any]) -> bool:
        return any(kind == allowed and query(facts) for allowed, query in self)
