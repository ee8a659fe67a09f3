"""The seed in a report reproduces the run: ids and random faults."""

from __future__ import annotations

import re

import pytest

from ..harness import Run

SOURCE = """
    import httpx

    def test_first(queue):
        queue.publish("https://app.test/hook")

    def test_random(kv_server, queue):
        kv_server.faults.random(0.5)
        kv_server.faults.random(0.3, "drop", command="get")
        seen = ""
        for _ in range(40):
            try:
                answer = httpx.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
                seen += "." if answer.is_success else "F"
            except httpx.TransportError:
                seen += "D"
        assert False, f"<{seen} {queue.publish('https://app.test/hook').id}>"
"""


@pytest.fixture(params=["function", "session"])
def run_in_scope(request: pytest.FixtureRequest, run: Run, pytester: pytest.Pytester) -> Run:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {request.param}")
    return run


def seen_and_seed(result: pytest.RunResult) -> tuple[str, str]:
    text = result.stdout.str()
    match = re.search(r"AssertionError: <(\S+ msg_\w+)>", text)
    assert match is not None
    # In a wide scope, the background may deliver before test_first ends, so that it fails, too.
    *_, seed = re.findall(r"seed\s+'(.*?)'", text)
    return match[1], seed


def test_a_run_can_be_had_again_from_the_seed_in_its_report(run_in_scope: Run) -> None:
    first, seed = seen_and_seed(run_in_scope(SOURCE))
    assert {"F", "D", "."} <= set(first)
    again, _ = seen_and_seed(run_in_scope(SOURCE, f"--fakecloud-seed={seed}"))
    assert again == first
    other, _ = seen_and_seed(run_in_scope(SOURCE, "--fakecloud-seed=another"))
    assert other != first


def test_what_ran_before_a_test_does_not_matter(run_in_scope: Run) -> None:
    all_of_them, _ = seen_and_seed(run_in_scope(SOURCE))
    alone, _ = seen_and_seed(run_in_scope(SOURCE, "-k", "test_random"))
    assert alone == all_of_them
