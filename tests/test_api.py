"""The public names: all of them exist, and no others."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest

import pytest_fakecloud
from pytest_fakecloud import Cloud, FaultPlan
from pytest_fakecloud.faults.plan import fault_words
from tests.harness import check_each

IDENTITY = "url token headers env name clock journal faults"
COMMON = (
    f"{IDENTITY} client async_client intercept rotate_token load snapshot restore set_baseline reset "
    "close assert_called assert_not_called"
)
FACE = {
    "kv_server": f"{COMMON} read_only_token database_url execute value values keys ttl "
    "reset_password between",
    "vector_index": f"{COMMON} vectors namespaces pending hold_pending release_pending matches "
    "assert_upserted assert_queried",
    "broker": f"{COMMON} username password create_topic add_partitions produce records topic group "
    "crash expire rebalance redeliver delete_records assert_produced assert_committed "
    "assert_caught_up wait_for_record aio",
    "queue": f"{COMMON} read_only_token current_signing_key next_signing_key publish messages "
    "attempts dead_letters retry_dead_letter schedules cancel rotate_keys deliver_due "
    "run_until_idle advance destinations "
    "assert_published assert_delivered assert_dead_lettered aio",
    "callback_capture": "callback_url failure_url callbacks failures wait_for_callback "
    "wait_for_failure aio",
    "destination": "url expect_request expect_ordered_request expect_oneshot_request",
}
CLOUD = [
    "kv_server",
    "vector_index",
    "broker",
    "queue",
    "handles",
    "clock",
    "journal",
    "env",
    "problems",
    "allow",
    "snapshot",
    "restore",
    "every_failure",
    "explore",
    "replay",
    "connect",
    "seed",
    "reset",
    "close",
]
CLOCK = [
    "now",
    "mode",
    "freeze",
    "resume",
    "advance",
    "move_to",
    "next_due",
    "advance_to_next",
    "aio",
]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(delivery="driven") as opened:
        yield opened


@pytest.mark.parametrize("fixture", FACE)
def test_handles_have_their_names(cloud: Cloud, fixture: str) -> None:
    handle = cloud.fixture_handle(fixture)
    assert [name for name in FACE[fixture].split() if not hasattr(handle, name)] == []


@pytest.mark.parametrize("fixture", ["kv_server", "vector_index", "broker", "queue"])
def test_every_service_has_every_fault(cloud: Cloud, fixture: str) -> None:
    faults = cloud.fixture_handle(fixture).faults
    extra = ["duplicate", "reorder", "tamper", "crash_after_answer"] if fixture == "queue" else []
    assert [
        name for name in (*fault_words(FaultPlan), "up", *extra) if not hasattr(faults, name)
    ] == []


def test_cloud_and_clock_have_their_names(cloud: Cloud) -> None:
    assert [name for name in CLOUD if not hasattr(cloud, name)] == []
    assert [name for name in CLOCK if not hasattr(cloud.clock, name)] == []


def test_lists_of_findings_have_only_last_and_where(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1})
    queue = cloud.queue()
    vector = cloud.vector_index(dimension=1)
    for found in (
        cloud.handles, cloud.problems, broker.journal.calls(), broker.records("orders"),
        queue.messages(), queue.attempts(), queue.dead_letters(), queue.schedules(),
        queue.run_until_idle(), vector.vectors(), cloud.callback_capture().callbacks,
    ):  # fmt: skip
        assert isinstance(found, list)
        assert callable(found.only)
        assert callable(found.where)
        with pytest.raises(AssertionError):
            _ = found[len(found) :].last


def test_all_is_what_can_be_imported() -> None:
    for name in pytest_fakecloud.__all__:
        found = getattr(pytest_fakecloud, name)
        assert not isinstance(found, type) or found.__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = pytest_fakecloud.Nope  # type: ignore[attr-defined]


def test_everything_public_is_documented() -> None:
    def check(name: str) -> None:
        owner = getattr(pytest_fakecloud, name)
        undocumented = [
            member
            for member, value in inspect.getmembers(owner)
            if not member.startswith("_")
            and (inspect.isfunction(value) or isinstance(value, property))
            and getattr(value, "__module__", "pytest_fakecloud").startswith("pytest_fakecloud")
            and not inspect.getdoc(value)
        ]
        assert inspect.getdoc(owner)
        assert undocumented == []

    check_each(check, zip(pytest_fakecloud.__all__))


def test_every_module_says_what_it_is() -> None:
    import pkgutil

    for module in pkgutil.walk_packages(pytest_fakecloud.__path__, "pytest_fakecloud."):
        if not module.name.endswith("__main__"):
            assert importlib.import_module(module.name).__doc__, module.name


def test_json_is_a_method_wherever_there_is_one() -> None:
    found = {
        f"{name}.{attribute}": getattr(value, attribute)
        for name in pytest_fakecloud.__all__
        if isinstance(value := getattr(pytest_fakecloud, name), type)
        for attribute in dir(value)
        if attribute.endswith("json")
    }
    assert len(found) > 5
    assert not [name for name, value in found.items() if not callable(value)]
