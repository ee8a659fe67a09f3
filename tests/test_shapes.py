"""A string that a field can never hold is an error wherever a test can filter by that field."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pytest_fakecloud
from pytest_fakecloud import Cloud
from pytest_fakecloud.broker.model import MEMBER_FIELDS, OFFSET_FIELDS, RECORD_FIELDS
from pytest_fakecloud.broker.routes import BrokerApp
from pytest_fakecloud.broker.views import GROUP_FIELDS, TOPIC_FIELDS
from pytest_fakecloud.cloud.base import fixture_fake
from pytest_fakecloud.core.calls import EVENT_FIELDS, EVENT_KINDS
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.field_types import MESSAGE_ID, PATH, TARGET, TEXT, URL, FieldType
from pytest_fakecloud.core.matching import Field, Question
from pytest_fakecloud.core.violations import ALLOWABLE
from pytest_fakecloud.faults.plan import fault_words, injector_of
from pytest_fakecloud.kv.command_fields import COMMAND_FIELDS
from pytest_fakecloud.kv.search.views import SEARCH_FIELDS
from pytest_fakecloud.queue.attempt_reports import AttemptDetails
from pytest_fakecloud.queue.capture.callbacks import FIELDS as CALLBACKS
from pytest_fakecloud.queue.delivery.faults import DELIVERY_FACTS
from pytest_fakecloud.queue.delivery.routes import DELIVERIES
from pytest_fakecloud.queue.rest.app import QueueApp
from pytest_fakecloud.queue.views import (
    ATTEMPTS,
    CRON,
    DEAD_LETTERS,
    DESTINATION,
    DLQ_ID,
    LABEL,
    MESSAGES,
    NAME,
    SCHEDULES,
)
from pytest_fakecloud.vector.fake import QUERY_FIELDS, UPSERT_FIELDS
from tests.faults.conftest import ARGUMENTS
from tests.harness import check_each, syntax
from tests.notations import complete

Fields = Mapping[str, Field]
Ask = Callable[..., object]

FREE = {
    # Names chosen by the code under test or a test, and strings written by the fakes.
    "events": "run",
    "calls": "fault index key namespace note violation",
    "messages": "schedule_id timeline",
    "dead letters": "timeline",
    "attempts": "run_error wait_reason where",
    "schedules": "error id",
    "deliveries": "query text",
    "records": "key",
    "members": "name",
    "groups": "name",
    "upserts": "data namespace",
    "queries": "data filter namespace",
    "searches": "index keys",
    "commands": "index key",
    "fakes": "token",
    "violations": "text what",
    "faults of kv_server": "index key",
    **dict.fromkeys((f"allow {kind}" for kind in ALLOWABLE), "fake"),
    "allow bug": "fake key",
    "allow assertion": "fake key",
    "allow rejected_step": "fake run_id",
    "allow no_workflow": "fake run_id",
}
"""Fields whose strings have no known form. Parameters of paths need not be listed."""
OF_DELIVERIES = {
    "duplicate", "reorder", "tamper", "crash_after_response", "drop_callback", "wrong_key",
    "next_key", "expired_token", "unsigned",
}  # fmt: skip
"""Faults of deliveries. All others concern requests."""
CANDIDATES = ("a.test/h", "Not a shape, nor a word!", "")


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """One of each fake, with an item in each list that a test can filter."""
    with Cloud(seed=1, clock="frozen") as cloud:
        kv, broker, queue, capture, index = map(
            partial(fixture_fake, cloud),
            ("kv_server", "broker", "queue", "callback_capture", "vector_index"),
        )
        kv.execute("SEARCH.CREATE", "ix", "PREFIX", 1, "p:", "ON", "JSON", "SCHEMA", "t", "TEXT")
        broker.create_topic("orders")
        broker.join("g", "i", ["orders"])
        queue.destinations.call("https://a.test", lambda request: 500)
        message = queue.publish("https://a.test/h", retries=0, callback=capture.callback_url)
        queue.schedule("https://a.test/h", "0 9 * * *")
        queue.deliver_due()
        assert (message.state, index.vectors()) == ("dead_lettered", [])
        yield cloud


def tables(cloud: Cloud) -> dict[str, Fields]:
    return {
        "calls": cloud.journal._recorder.call_fields,
        "messages": MESSAGES,
        "dead letters": DEAD_LETTERS,
        "attempts": ATTEMPTS,
        "schedules": SCHEDULES,
        "deliveries": DELIVERIES,
        "callbacks": CALLBACKS,
        "records": RECORD_FIELDS,
        "offsets": OFFSET_FIELDS,
        "members": MEMBER_FIELDS,
        "topics": TOPIC_FIELDS,
        "groups": GROUP_FIELDS,
        "upserts": UPSERT_FIELDS,
        "queries": QUERY_FIELDS,
        "searches": SEARCH_FIELDS,
        "fakes": fields_of_list(cloud.fakes()),
        "violations": fields_of_list(cloud.violations()),
        **{f"allow {kind}": fields for kind, fields in ALLOWABLE.items()},
        **{
            f"faults of {fake.name}": injector_of(fake.faults).fact_fields
            for fake in map(partial(fixture_fake, cloud), ("kv_server", "broker", "queue"))
        },
        "faults of deliveries": DELIVERY_FACTS,
        "events": fields_of_list(cloud.journal.events()),
        "commands": COMMAND_FIELDS,
    }


def fields_of_list(value: Any) -> Fields:
    return value._fields


def wrong(field_type: FieldType) -> str | None:
    """Return a string that no value of a type can equal; None if any string can."""
    for text in CANDIDATES:
        try:
            field_type.check("x", text)
        except ContractError:
            return text
    return None


def recorded_events(*methods: str) -> Iterator[ast.Call]:
    """Yield the calls in the package's source that record an event with one of the methods."""
    for path in sorted(Path(pytest_fakecloud.__file__).parent.rglob("*.py")):
        if re.search(r"\b_?add_event\(", path.read_text(encoding="utf-8")):
            for node in ast.walk(syntax(path)):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in methods:
                    yield node


@pytest.mark.completeness
def test_events_can_be_filtered_by_their_data() -> None:
    calls = recorded_events("add_event", "_add_event")
    names = {word.arg for call in calls for word in call.keywords} - {
        None,
        "at_us",
        "caused_by",
        "ended_us",
    }
    listed = EVENT_FIELDS.keys() | BrokerApp.event_fields.keys() | QueueApp.event_fields.keys()
    assert {"message_id", "group", "idle"} <= names <= listed
    assert set(AttemptDetails.__annotations__) <= listed


@pytest.mark.completeness
def test_kinds_of_events_are_listed_where_they_are_recorded() -> None:
    calls = recorded_events("add_event", "_add_event")
    first = (getattr(call.args[0], "value", None) for call in calls if call.args)
    recorded = {word for word in first if isinstance(word, str)}
    listed = EVENT_KINDS | BrokerApp.event_kinds | QueueApp.event_kinds
    assert {"attempt", "refused", "join", "revoked"} <= recorded <= listed


def test_a_kind_of_event_that_no_fake_records_is_an_error(cloud: Cloud) -> None:
    broker, kv = cloud.fakes().where(fixture="broker").only(), fixture_fake(cloud, "kv_server")
    with pytest.raises(
        ContractError, match=r"kind='atempt' .* did you mean 'attempt'\? Known kinds"
    ):
        cloud.journal.events("atempt")
    with pytest.raises(ContractError, match="is not a kind of event"):
        kv.journal.events("attempt")
    with pytest.raises(ContractError, match="is not a kind of event"):
        broker.journal.events().where(kind="jion")
    assert broker.journal.events("j*") == broker.journal.events("join") != []


def test_fakes_and_services_are_named_by_the_error(cloud: Cloud) -> None:
    cloud.journal.assert_not_called(service="vector", fake="vector_index")
    with pytest.raises(ContractError, match=r"did you mean 'queue'\? Known .*\bkv, queue"):
        cloud.journal.assert_not_called(service="qeue")
    with pytest.raises(
        ContractError, match="Known names: broker, callback_capture, kv_server, queue"
    ):
        cloud.journal.assert_not_called(fake="cache")


@pytest.mark.completeness
def test_every_string_field_has_a_shape_or_is_known_to_have_none(cloud: Cloud) -> None:
    unshaped = {
        (table, name)
        for table, fields in tables(cloud).items()
        for name, field in fields.items()
        if field.type.samples == TEXT.samples and wrong(field.type) is None
    }
    free = {(table, name) for table, names in FREE.items() for name in names.split()}
    of_paths = {
        (table, name)
        for fake in cloud.fakes()
        for route in fake._app.table.routes
        for table in ("calls", f"faults of {fake.name}")
        for name in route.parameters
    }
    complete(
        Path(__file__),
        (
            f"to FREE[{table!r}]: {name} (or declare the field's type, if it is not any string)"
            for table, name in sorted(unshaped - free - of_paths)
        ),
    )
    assert not free - unshaped, "remove these from FREE"


def asked(cloud: Cloud) -> dict[str, tuple[Fields, Ask]]:
    """Return each method that filters, with the fields it accepts."""
    made: Any = {fake.name: fake for fake in cloud.fakes()}
    broker, queue, capture = made["broker"], made["queue"], made["callback_capture"]
    index, kv = made["vector_index"], made["kv_server"]
    record_tables = tables(cloud)
    message = queue.messages()[0]
    no_topic = {name: field for name, field in RECORD_FIELDS.items() if name != "topic"}
    one_state = {name: field for name, field in MESSAGES.items() if name != "state"}
    methods: dict[str, tuple[Fields, Ask]] = {
        **{
            f"queue.{name}": (one_state, getattr(queue, name))
            for name in dir(queue)
            if re.fullmatch("assert_(not_)?(published|delivered|dead_lettered)", name)
        },
        "queue.messages": (MESSAGES, queue.messages),
        "queue.messages().where": (MESSAGES, queue.messages().where),
        "message.callbacks.where": (MESSAGES, message.callbacks.where),
        "queue.pending().where": (MESSAGES, queue.pending().where),
        "queue.attempts": (ATTEMPTS, queue.attempts),
        "message.attempts.where": (ATTEMPTS, message.attempts.where),
        "queue.deliver_due().where": (ATTEMPTS, queue.deliver_due().where),
        "queue.dead_letters": (DEAD_LETTERS, queue.dead_letters),
        "queue.schedules().where": (SCHEDULES, queue.schedules().where),
        "route.deliveries.where": (DELIVERIES, queue.destinations.routes().only().deliveries.where),
        **{
            f"capture.{name}": (CALLBACKS, getattr(capture, name))
            for name in dir(capture)
            if re.fullmatch("(assert|assert_no|wait_for)_(callback|failure)", name)
        },
        **{
            f"capture.{name}().where": (CALLBACKS, getattr(capture, name)().where)
            for name in ("callbacks", "failures")
        },
        "broker.records": (no_topic, lambda **where: broker.records("orders", **where)),
        "broker.records().where": (RECORD_FIELDS, broker.records("orders").where),
        "broker.assert_not_produced": (
            no_topic,
            lambda **where: broker.assert_not_produced("orders", **where),
        ),
        "broker.assert_not_committed": (
            OFFSET_FIELDS,
            lambda **where: broker.assert_not_committed("g", **where),
        ),
        "broker.topics().where": (TOPIC_FIELDS, broker.topics().where),
        "broker.groups().where": (GROUP_FIELDS, broker.groups().where),
        "broker.group().members.where": (MEMBER_FIELDS, broker.group("g").members.where),
        "vector_index.assert_not_upserted": (UPSERT_FIELDS, index.assert_not_upserted),
        "vector_index.assert_not_queried": (QUERY_FIELDS, index.assert_not_queried),
        "kv_server.assert_not_searched": (record_tables["searches"], kv.assert_not_searched),
        "cloud.fakes().where": (record_tables["fakes"], cloud.fakes().where),
        "cloud.violations().where": (record_tables["violations"], cloud.violations().where),
        "cloud.journal.calls": (record_tables["calls"], cloud.journal.calls),
        "cloud.journal.calls().where": (record_tables["calls"], cloud.journal.calls().where),
        "cloud.journal.assert_not_called": (
            record_tables["calls"],
            cloud.journal.assert_not_called,
        ),
        "cloud.journal.events": (record_tables["events"], cloud.journal.events),
    }
    for service_fake in cloud.fakes():
        own = service_fake.journal._recorder.call_fields
        methods[f"{service_fake.name}.assert_not_called"] = own, service_fake.assert_not_called
    for service_fake in (kv, index, broker, queue):
        plan = injector_of(service_fake.faults)
        for word in fault_words(type(service_fake.faults)):
            own_facts = plan.service_fields if word in OF_DELIVERIES else None
            facts = plan.fact_fields if own_facts is None else own_facts
            method = getattr(service_fake.faults, word)
            methods[f"{service_fake.name}.faults.{word}"] = facts, bound_fault(word, method)
    for kind, fields in ALLOWABLE.items():
        methods[f"allow {kind}"] = fields, lambda kind=kind, **where: cloud.allow(kind, **where)
    return methods


def bound_fault(word: str, method: Ask) -> Ask:
    of_services = {name: [1] for name in ("partial_produce", "burst_limit", "daily_limit")}
    first = {**ARGUMENTS, **of_services}.get(word, [])
    return lambda **where: method(*first, **where)


def test_a_string_that_can_never_be_is_an_error_wherever_it_is_asked(cloud: Cloud) -> None:
    questions = [
        (place, name, text, ask)
        for place, (fields, ask) in asked(cloud).items()
        for name, field in fields.items()
        if (text := wrong(field.type)) is not None
    ]
    assert {name for _, name, *_ in questions} > {
        "url", "path", "target", "topic", "message_id", "id", "dlq_id", "at", "created", "kind",
        "state", "queue", "route", "method", "cron", "destination", "source_message_id",
    }  # fmt: skip

    def is_refused(place: str, name: str, text: str, ask: Ask) -> None:
        with pytest.raises(ContractError):
            ask(**{name: text})

    check_each(is_refused, questions)


@pytest.mark.parametrize(
    ("field_type", "right", "never"),
    [
        (
            URL,
            ["https://a.test/h", "HTTP://a.test", "https://a.test:8080/?q=1", "http*", "*/h", "https:*"],
            ["a.test/h", "a.test/*", "/h", "ftp://a.test/", "https://", "https://a.test/ h", "*a b",
             "https://a.test:port/"],
        ),
        (PATH, ["/h", "*/h", "/a%20b", "/"], ["h", "h/*", "/h?x=1", "/a b", "/é", ""]),
        (TARGET, ["/h?x=1", "*?x=1"], ["h?x=1", "/h ", ""]),
        (MESSAGE_ID, ["msg_1a", "m*", "*a"], ["1a", "msg-1", "message_1", "x*"]),
        (DLQ_ID, ["1767225600000-0", "17*"], ["msg_1", "1767225600000", "dlq*"]),
        (NAME, ["orders.v1", "or*"], ["or ders", "https://a.test", "a/*", ""]),
        (DESTINATION, ["https://a.test", "news", "api/llm"], ["a.test/h", "api/llms", ""]),
        (LABEL, ["a label", "*x"], ["a,b", " a", ""]),
        (CRON, ["0 9 * * *", "CRON_TZ=Europe/Berlin 0 9 1 1 1", "@daily"], ["daily", "0 9 1 1", ""]),
    ],
)  # fmt: skip
def test_what_a_shape_takes(field_type: FieldType, right: list[str], never: list[str]) -> None:
    for text in (*right, re.compile("anything"), str.isupper, None):
        Question("x", text, field_type)
    for text in never:
        with pytest.raises(ContractError, match=r"x='.*' can never match: .*such as '"):
            Question("x", text, field_type)


def test_the_error_says_what_is_wrong_and_what_to_give(cloud: Cloud) -> None:
    queue: Any = fixture_fake(cloud, "queue")
    with pytest.raises(ContractError) as caught:
        queue.assert_not_delivered("a.test/h")
    assert str(caught.value) == (
        "url='a.test/h' can never match: an absolute URL begins with 'http://' or 'https://'. Pass an "
        "absolute URL such as 'https://app.example.com/hook' (* matches anything), a pattern, or a "
        "function"
    )


def test_a_key_is_asked_for_with_a_prefix_of_its_index(cloud: Cloud) -> None:
    kv: Any = fixture_fake(cloud, "kv_server")
    kv.assert_not_searched("ix", keys="p:1")
    kv.assert_not_searched(keys="1")
    with pytest.raises(
        ContractError, match="keys='1' can never match: a key of 'ix' begins with 'p:'"
    ):
        kv.assert_not_searched("ix", keys="1")


def test_a_fact_of_several_services_may_be_what_it_is_in_any(cloud: Cloud) -> None:
    cloud.journal.assert_not_called(command="SET")
    cloud.journal.assert_not_called(command="upsert-data")


def test_a_delivery_is_never_to_a_group(cloud: Cloud) -> None:
    queue: Any = fixture_fake(cloud, "queue")
    with pytest.raises(ContractError, match="url='news' can never match: an absolute URL"):
        queue.faults.duplicate(url="news")
    queue.faults.drop(url="news").remove()
