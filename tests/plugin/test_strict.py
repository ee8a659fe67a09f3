"""Strict mode: the violations that fail a passing test, their messages, and how to allow them."""

from __future__ import annotations

import re
import textwrap

import pytest

from pytest_fakecloud.core.violations import NAMED_KINDS, VIOLATION_KINDS

from ..harness import Run

UNROUTED = """
        import pytest
        import requests

        def wander(broker, path="/nope"):
            requests.get(broker.url + path, auth=(broker.username, broker.password))
"""


@pytest.mark.parametrize("value", ["false", "off", "bug unmet"])
def test_the_ini_relaxes_it(run: Run, pytester: pytest.Pytester, value: str) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_strict = {value}")
    run(UNROUTED + "\n        def test_it(broker):\n            wander(broker)\n").assert_outcomes(
        passed=1
    )


@pytest.mark.parametrize(
    ("value", "outcomes"),
    [("[]", {"passed": 1}), ("['bug', 'unmet']", {"passed": 1}), ("['unrouted']", {"failed": 1})],
)
def test_toml_relaxes_it_with_a_list(
    run: Run, pytester: pytest.Pytester, value: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyprojecttoml(f"[tool.pytest.ini_options]\nfakecloud_strict = {value}")
    source = UNROUTED + "\n        def test_it(broker):\n            wander(broker)\n"
    run(source).assert_outcomes(**outcomes)


VIOLATIONS = {
    "unrouted": """
        answer = requests.delete(kv_server.url + '/*"x', headers=kv_server.headers)
        assert answer.status_code == 405
        """,
    "unstubbed": """
        queue.publish("https://nobody.test/hook", retries=0)
        queue.run_until_idle()
        """,
    "bug": """
        def broken(request, endpoint):
            raise ZeroDivisionError("in the engine")

        broker._app.call_endpoint = broken
        requests.get(broker.url + "/topics", auth=(broker.username, broker.password))
        """,
    "unused_fault": 'kv_server.faults.drop(command="SET")',
    "unmet": 'destination.server.expect_oneshot_request("/hook").respond_with_data("")',
    "rejected_step": """
        step = {
            "destination": "https://app.test/flow",
            "headers": {
                "Upstash-Workflow-RunId": "r",
                "Upstash-Workflow-Init": "false",
                "Upstash-Delay": "soon",
            },
        }
        requests.post(queue.url + "/v2/batch", headers=queue.headers, json=[step])
        """,
    "no_workflow": """
        queue.destinations.accept()
        requests.post(queue.url + "/v2/trigger/https://app.test/flow", headers=queue.headers)
        queue.run_until_idle()
        """,
    "assertion": """
        def handler(request):
            assert request.json() == {"n": 2}

        queue.destinations.call("https://app.test", handler)
        queue.publish("https://app.test/hook", json={"n": 1}, retries=0)
        try:
            queue.run_until_idle()
        except AssertionError:
            pass
        """,
    "undelivered": 'queue.publish("https://app.test/hook")',
}
"""Statements that cause a violation of each kind."""


def test_every_kind_says_how_to_allow_it(run: Run) -> None:
    assert VIOLATIONS.keys() == VIOLATION_KINDS.keys() | NAMED_KINDS.keys()
    test = """
@pytest.mark.fakecloud(strict={kind!r})
def test_{kind}(kv_server, broker, queue, destination, fakecloud):
    {allow}
{body}
"""

    def suite(allowed: dict[str, str]) -> str:
        return "import pytest\nimport requests\n" + "".join(
            test.format(
                kind=kind,
                allow=allowed.get(kind, "pass"),
                body=textwrap.indent(textwrap.dedent(body).strip(), "    "),
            )
            for kind, body in VIOLATIONS.items()
        )

    result = run(suite({}))
    result.assert_outcomes(failed=len(VIOLATIONS))
    said = dict(
        re.findall(r"^(?:E +)?\[(\w+)\] .*\(if intended: (.*\))\)$", result.stdout.str(), re.M)
    )
    assert said.keys() == VIOLATIONS.keys()
    assert all("=" in line for line in said.values())
    run(suite(said)).assert_outcomes(passed=len(VIOLATIONS))


def test_faults_and_expectations_that_never_fired_fail(run: Run) -> None:
    result = run(
        """
        def test_unmet(destination):
            destination.server.expect_ordered_request("/hook").respond_with_data("ok")

        def test_forgotten(broker):
            broker.faults.respond(503, route="commit")

        def test_removed(broker):
            broker.faults.respond(503, route="commit").remove()

        def test_as_a_block(broker):
            with broker.faults.respond(503, route="commit"):
                pass
        """
    )
    assert result.parseoutcomes()["failed"] >= 2
    result.stdout.fnmatch_lines(
        ["[[]unmet] destination: *", "[[]unused_fault] broker: the fault *commit* never fired*"]
    )


def test_unittest_cases_are_told_apart(run: Run) -> None:
    result = run(
        UNROUTED
        + """
        import unittest

        class Case(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def fakes(self, broker):
                self.broker = broker

            def test_clean(self):
                self.broker.create_topic("orders")

            def test_left_a_violation(self):
                wander(self.broker)

            def test_fails_itself(self):
                wander(self.broker)
                self.fail("own reason")

            def test_skips(self):
                wander(self.broker)
                self.skipTest("half way")

            @unittest.expectedFailure
            def test_expected(self):
                wander(self.broker)
                self.fail("as expected")
        """
    )
    result.assert_outcomes(passed=1, failed=2, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines_random(
        [
            "*AssertionError: own reason",
            "fakecloud: the test passed, but with 1 strict-mode violation",
        ]
    )
