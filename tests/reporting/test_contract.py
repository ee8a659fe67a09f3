"""The functions of services that reports call; mypy checks their types."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from inspect import signature
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest

import pytest_fakecloud
from pytest_fakecloud import Cloud
from pytest_fakecloud.broker.report.accesses import ARGUMENTS
from pytest_fakecloud.cloud.base import fixture_fake
from pytest_fakecloud.cloud.services import SERVICES, Service, imported, named
from pytest_fakecloud.core.calls import Action
from pytest_fakecloud.reporting.accesses import DataAccess, SubjectKind
from pytest_fakecloud.reporting.contract import (
    IN_USE,
    ActionFunctions,
    CallFunctions,
    CommandFunctions,
    DeliveryFunctions,
    EventFunctions,
    ReportFunctions,
    functions_of,
)
from pytest_fakecloud.reporting.errors import tolerant
from pytest_fakecloud.reporting.lookups import Lookups
from pytest_fakecloud.reporting.mask import Mask
from pytest_fakecloud.reporting.model import Finding, MaskedAction
from pytest_fakecloud.reporting.render import wording
from pytest_fakecloud.reporting.render.as_json import as_json
from pytest_fakecloud.reporting.render.text import text
from pytest_fakecloud.reporting.render.wording import sentence, sentences
from pytest_fakecloud.reporting.report import Report, report_of

from ..harness import check_each, syntax
from .test_each_builder_raises import BROKE, use_all


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.fixture)
def test_each_service_has_functions(service: Service) -> None:
    functions = functions_of(service.fixture)
    assert functions is not functions_of("unknown")
    assert service.word is None or functions is functions_of(service.word)
    assert bool(functions.detectors) <= bool(functions.sentences)


GROUPS = {"calls.": CallFunctions, "protocol.": CommandFunctions,
          "events.": EventFunctions, "actions.": ActionFunctions,
          "deliveries.": DeliveryFunctions, "": ReportFunctions}  # fmt: skip
NAMES = [prefix + field.name for prefix, group in GROUPS.items() for field in fields(group)]


def raw(fixture: str) -> ReportFunctions:
    """Return the functions of a service as it has written them."""
    service = named(fixture)
    assert service is not None
    functions: ReportFunctions = imported(service.report)
    return functions


def is_own(fixture: str, name: str) -> bool:
    """Return whether a service has a function of its own."""
    function = attrgetter(name)
    return function(raw(fixture)) is not function(functions_of("unknown"))


@pytest.mark.parametrize("name", NAMES)
def test_a_service_needs_each_function(name: str) -> None:
    assert any(is_own(fixture, name) for fixture in SERVICES)


def test_a_kind_of_findings_belongs_to_one_service() -> None:
    owners = [wording._SENTENCES, *(raw(fixture).sentences for fixture in SERVICES)]
    kinds = Counter(kind for own in owners for kind in own)
    assert [kind for kind, count in kinds.items() if count > 1] == []
    assert "expired" in kinds


def test_a_sentence_loads_no_service_that_is_not_in_use() -> None:
    """The vector index imports numpy."""
    script = """
        import sys
        from pytest_fakecloud.reporting.contract import functions_of
        from pytest_fakecloud.reporting.lookups import Lookups
        from pytest_fakecloud.reporting.model import Finding
        from pytest_fakecloud.reporting.render.wording import sentence

        functions_of("kv_server")
        print(sentence(Finding("expired", "kv", values={"key": "a", "at": "noon"}), Lookups()))
        print("numpy" in sys.modules)
    """
    command = [sys.executable, "-c", dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "kv: a expired at noon\nFalse\n"


def kinds_of_findings() -> Iterator[tuple[str, str]]:
    """Yield the kinds in the source of this package, each with its module."""
    for path in sorted(Path(pytest_fakecloud.__file__).parent.rglob("*.py")):
        if not re.search(r"\b([Ff]inding|about)\(", path.read_text("utf-8")):
            continue
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ("Finding", "about", "finding"):
                    yield str(node.args[0].value), path.name


def test_each_kind_of_finding_has_a_sentence() -> None:
    kinds = dict(kinds_of_findings())
    assert len(kinds) > 20
    assert [*map(functions_of, SERVICES)]
    missing = {kind: module for kind, module in kinds.items() if kind not in sentences()}
    assert not missing, f"add these kinds to SENTENCES of the wording: {missing}"


@pytest.mark.parametrize(
    ("kind", "why"), [("unknown", "no sentence"), ("expired", "KeyError: 'at'")]
)
def test_a_finding_without_its_sentence_shows_its_data(kind: str, why: str) -> None:
    finding = Finding(kind, "kv", values={"key": "a"})
    assert sentence(finding, Lookups()).startswith(f'kv: {kind} {{"key":"a"}} ({why}')


def report_of_broken(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]
) -> tuple[Report, str]:
    """Return the report of a call of which a function of its service raises an error, and its text."""

    def broken(*arguments: object) -> object:
        raise error("of the service")

    monkeypatch.setattr(f"pytest_fakecloud.{name}", broken)
    report = report_of(cloud, raised=AssertionError())
    return report, text(report)


ERRORS = (ValueError, KeyError, TypeError, AttributeError)
SERVICE = {"accesses": "kv.report.accesses.of_command", "words": "kv.report.wording._result"}
"""Functions of a service, by what a row lacks if they raise an exception."""


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_a_service_is_reported(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    kv_server, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    kv_server.client().get("a")
    broker.client().get("/produce/orders/a")
    with monkeypatch.context() as patch:
        report, _ = report_of_broken(cloud, patch, SERVICE["accesses"], error)
    [shown] = report.errors
    assert shown.startswith("what a row of kv_server accessed cannot be shown: ")
    assert error.__name__ in shown
    assert report.marks.touched == {row.number for row in report.rows if row.peer == "broker"}
    _, shown = report_of_broken(cloud, monkeypatch, SERVICE["words"], error)
    assert 'POST / ["GET","a"] <-- 200 {"result":null}\n' in shown
    assert f"cannot be described: {error.__name__}" in shown


def test_an_action_that_cannot_be_shown_loses_no_other_row(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv_server, masked = cloud.kv_server(), Mask.action
    kv_server.client().get("a")
    kv_server.execute("SET", "a", "1")
    kv_server.load({"a": "2"})

    def broken(mask: Mask, action: Action) -> MaskedAction:
        if action.kind == "execute":
            raise RuntimeError(BROKE)
        return masked(mask, action)

    monkeypatch.setattr(Mask, "action", broken)
    report = report_of(cloud, raised=AssertionError())
    assert [row.kind for row in report.rows] == ["call", "event", "action"]
    assert f"this entry cannot be shown: RuntimeError: {BROKE}" in text(report)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", SERVICE.values(), ids=SERVICE)
def test_an_error_is_expected_of_a_request_that_was_rejected_or_cut(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]
) -> None:
    kv_server = cloud.kv_server()
    cloud.journal.keep_bytes = 0
    kv_server.client().set("a", "x" * 9000)
    kv_server.faults.respond(500, times=1)
    httpx.post(kv_server.url, json=["GET", "a"], headers=kv_server.headers)
    report, shown = report_of_broken(cloud, monkeypatch, name, error)
    assert [row.ok for row in report.rows if row.kind == "call"] == [True, False]
    assert (report.errors, "cannot be described" in shown) == ([], False)


FUNCTIONS = sorted({
    name for fixture in SERVICES for name in NAMES
    if callable(attrgetter(name)(raw(fixture))) and is_own(fixture, name)
})  # fmt: skip
"""The functions of any service."""


def make_rows(cloud: Cloud) -> None:
    """Make rows of every kind, for which all functions are called."""
    use_all(cloud)
    fakes = {fake.service: fake for fake in cloud.fakes()}
    kv_server, broker, vector_index = (fakes[name] for name in ("kv", "broker", "vector"))
    httpx.post(f"{broker.url}/produce/none/a")
    broker.create_topic("u")
    broker.join("h", "i", ["u"])
    broker.client().get("/consume/h/j/u")
    kv_server.client().set("a", "1")
    vector_index.load([{"id": "b", "vector": [1, 0]}])
    receiver, queue = cloud.callback_capture(), fakes["queue"]
    queue.publish(f"{receiver.url}/x", body="x")
    queue.deliver_due()


def broken_functions(fixture: str, names: Iterable[str], error: Exception) -> ReportFunctions:
    """Return the functions of a service, of which those with these names raise an error."""

    def broken(*arguments: object, **named: object) -> object:
        raise error

    functions = raw(fixture)
    for name in names:
        group, _, own_name = name.rpartition(".")
        changes: dict[str, Any] = {own_name: broken}
        if group:
            changes = {group: replace(getattr(functions, group), **changes)}
        functions = replace(functions, **changes)
    return tolerant(functions)


def shown_by(cloud: Cloud) -> tuple[list[int], str]:
    """Return the numbers of the rows of a report, and all that is shown."""
    with pytest.raises(AssertionError) as failed:
        assert next(fake for fake in cloud.fakes() if fake.service == "kv").string("a") == "2"
    report = report_of(cloud, raised=failed.value, idle_s=2)
    other = report_of(cloud, read=["1"])
    data = as_json(report)
    assert [row["number"] for row in data["rows"]] == [row.number for row in report.rows]
    texts = [text(report), json.dumps(data), *other.errors]
    return sorted(row.number for row in report.rows), "\n".join(texts)


def test_an_error_in_a_function_loses_no_row(cloud: Cloud) -> None:
    make_rows(cloud)
    numbers, shown = shown_by(cloud)
    assert BROKE not in shown

    def check(name: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for fixture in SERVICES:
                functions = broken_functions(fixture, [name], RuntimeError(BROKE))
                patch.setitem(IN_USE, fixture, functions)
            rows, shown = shown_by(cloud)
        # Without the lookups, for example, calls have rows of their own that are one row otherwise.
        assert set(rows) >= set(numbers)
        assert BROKE in shown

    check_each(check, [(name,) for name in FUNCTIONS])


CALL_FUNCTIONS = [name for name in FUNCTIONS if name.startswith(("calls.", "protocol."))]


@pytest.mark.parametrize("error", ERRORS)
def test_no_function_needs_to_read_a_call_that_was_rejected(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    kv_server = cloud.kv_server()
    httpx.post(kv_server.url, json=["AUTH", "secret"], headers={"Authorization": "Bearer no"})
    functions = broken_functions("kv_server", CALL_FUNCTIONS, error(BROKE))
    monkeypatch.setitem(IN_USE, "kv_server", functions)
    report = report_of(cloud, raised=AssertionError(), idle_s=2)
    other = report_of(cloud, read=["secret"])
    shown = "\n".join([text(report), json.dumps(as_json(report)), *other.errors])
    [row] = report.rows
    assert row.source.call is not None
    assert BROKE not in shown
    assert "secret" not in shown, "a body that cannot be read may have a password anywhere"


def test_a_call_that_was_answered_has_a_row_although_every_function_raises(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rows(cloud)
    numbers, _ = shown_by(cloud)
    for fixture in SERVICES:
        names = [name for name in FUNCTIONS if is_own(fixture, name)]
        monkeypatch.setitem(IN_USE, fixture, broken_functions(fixture, names, ValueError(BROKE)))
    rows, shown = shown_by(cloud)
    assert set(rows) >= set(numbers)
    assert BROKE in shown


def test_a_closed_fake_has_the_service_of_an_open_one(cloud: Cloud) -> None:
    for service in SERVICES:
        fixture_fake(cloud, service)
    opened = report_of(cloud).fakes
    for fake in list(cloud.fakes()):
        fake.close()
    assert report_of(cloud).fakes == [replace(fake, closed=True) for fake in opened]


def test_a_named_subject_is_neither_read_nor_written() -> None:
    access = DataAccess.named(SubjectKind("lock"), "a", "locks")
    assert (access.reads, access.writes) == (False, False)


@pytest.mark.parametrize(
    ("query", "headers", "why"),
    [
        ("", {}, "no credentials were sent"),
        ("?_token=guess", {}, "the _token in the URL is wrong"),
        (
            "?_token=guess",
            {"Authorization": "Bearer no"},
            "the credentials are not those of kv_server",
        ),
    ],
)
def test_a_report_says_which_credentials_were_rejected(
    cloud: Cloud, query: str, headers: dict[str, str], why: str
) -> None:
    httpx.get(f"{cloud.kv_server().url}/get/a{query}", headers=headers)
    report = report_of(cloud)
    [rejected] = report.violations
    assert sentence(rejected, report.lookups).endswith(f"answered 401 to 1 of 1 call: {why}")


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_actions_on_a_broker_have_these_arguments(cloud: Cloud, kind: str) -> None:
    method = attrgetter(kind)(cloud.broker())
    assert list(signature(method).parameters)[: len(ARGUMENTS[kind])] == ARGUMENTS[kind]
