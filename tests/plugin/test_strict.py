"""Strict mode: the violations that fail a passing test, their messages, and how to allow them."""

from __future__ import annotations

import re
import textwrap

import pytest

from pytest_fakecloud.core.problems import NAMED_KINDS, PROBLEM_KINDS

from ..harness import Run

UNROUTED = """
        import pytest
        import requests

        def wander(broker, path="/nope"):
            requests.get(broker.url + path, auth=(broker.username, broker.password))
"""


def test_requests_without_a_route_fail_their_test_in_its_call_phase(run: Run) -> None:
    result = run(
        UNROUTED
        + """
        def test_unknown_path(broker):
            wander(broker)

        def test_repeated(broker):
            for path in ("/nope", "/never", "/nope", "/nope"):
                wander(broker, path)

        def test_secret(queue):
            requests.get(f"{queue.url}/v9/x", params={"qstash_token": queue.token})

        def test_wrong_method(broker):
            requests.patch(broker.url + "/topics", auth=(broker.username, broker.password))
        """
    )
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "fakecloud: the test passed, but with 1 strict-mode violation",
            "[[]unrouted] broker got GET /nope: no route for it; nearest: * "
            '(if intended: fakecloud.allow("unrouted", path="/nope"))',
        ],
        consecutive=True,
    )
    result.stdout.fnmatch_lines(
        [
            "fakecloud: the test passed, but with 4 strict-mode violations",
            '[[]unrouted] broker got GET /nope: *path="/nope")) (3 times)',
            '[[]unrouted] broker got GET /never: *path="/never"))',
        ],
        consecutive=True,
    )
    result.stdout.fnmatch_lines(
        [
            "?unrouted? queue got GET /v9/x[?]qstash_token=[*][*][*]: no route for it; nearest: *",
            "*broker got PATCH /topics: the path accepts GET*",
        ]
    )


def test_a_marker_relaxes_it(run: Run) -> None:
    run(
        UNROUTED
        + """
        @pytest.mark.parametrize("kinds", [
            pytest.param(kinds, marks=pytest.mark.fakecloud(strict=kinds))
            for kinds in (False, ["bug", "unused_fault"], "bug unmet", ())
        ])
        def test_it(broker, kinds):
            wander(broker)
        """
    ).assert_outcomes(passed=4)


@pytest.mark.parametrize("value", ["false", "off", "bug unmet"])
def test_the_ini_relaxes_it(run: Run, pytester: pytest.Pytester, value: str) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_strict = {value}")
    run(UNROUTED + "\n        def test_it(broker):\n            wander(broker)\n").assert_outcomes(
        passed=1
    )


def test_allow_covers_only_what_it_names(run: Run) -> None:
    result = run(
        UNROUTED
        + """
        def test_covered(broker, fakecloud):
            fakecloud.allow("unrouted", path="/nope")
            wander(broker)

        def test_covered_by_predicate(broker, fakecloud):
            fakecloud.allow("unrouted", path=lambda path: path.startswith("/no"))
            wander(broker)

        def test_not_covered(broker, fakecloud):
            fakecloud.allow("unrouted", path="/other")
            wander(broker)

        def test_no_such_kind(fakecloud):
            with pytest.raises(Exception, match="Known kinds: unrouted, unstubbed"):
                fakecloud.allow("unruted")
        """
    )
    result.assert_outcomes(passed=3, failed=1)


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
        def broken(request):
            raise ZeroDivisionError("in the engine")

        table = broker._app.table
        table.routes = tuple(route._replace(endpoint=broken) for route in table.routes)
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
    assert VIOLATIONS.keys() == PROBLEM_KINDS.keys() | NAMED_KINDS.keys()
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
    assert all("=" in one for one in said.values())
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


def test_what_happened_less_often_than_planned_fails(run: Run) -> None:
    result = run(
        """
        import pytest
        import requests

        URL = "https://app.test/hook"

        def call(fake, path="/", **sent):
            return requests.post(fake.url + path, headers=fake.headers, **sent).status_code

        def test_times(kv_server):
            kv_server.faults.respond(503, times=2)
            assert call(kv_server, json=["PING"]) == 503

        def test_steps(kv_server):
            kv_server.faults.sequence([503, 429, None])
            assert call(kv_server, json=["PING"]) == 503

        def test_block(queue):
            queue.destinations.accept()
            with queue.faults.duplicate(times=2):
                queue.publish(URL)
                queue.run_until_idle()

        def test_answers(queue):
            queue.destinations.respond(URL, 503, 200)
            queue.publish(URL, retries=0)
            queue.run_until_idle()

        def test_batches(broker):
            broker.create_topic("t")
            broker.faults.partial_produce(keep=1, times=2)
            assert call(broker, "/produce/t", json=[{"value": "a"}, {"value": "b"}]) == 503

        def test_interruption(kv_server):
            with pytest.raises(ValueError), kv_server.between(("GET", "SET"), run=["DEL", "k"]):
                call(kv_server, json=["GET", "k"])
                raise ValueError

        def test_reset(kv_server, queue, broker):
            kv_server.faults.respond(503, times=2)
            kv_server.between(run=print)
            queue.destinations.respond(URL, 503, 200)
            queue.set_baseline()
            broker.faults.partial_produce(keep=1)
            for fake in (kv_server, queue, broker):
                fake.reset()

        def test_all_of_it(kv_server, queue, broker):
            kv_server.faults.respond(503, times=2)
            for _ in range(2):
                call(kv_server, json=["PING"])
            queue.destinations.respond(URL, 503, 200)
            before = queue.snapshot()
            queue.publish(URL, retries=1)
            queue.run_until_idle()
            queue.restore(before)
            broker.create_topic("t")
            broker.faults.partial_produce(keep=1)
            assert call(broker, "/produce/t", json=[{"value": "a"}, {"value": "b"}]) == 503
            broker.faults.partial_produce(keep=1)
            assert call(broker, "/produce/t", json=[{"value": "a"}, {"value": "b"}]) == 503
        """
    )
    result.assert_outcomes(failed=6, passed=2)
    result.stdout.fnmatch_lines(
        [
            "[[]unused_fault] kv_server: the fault *times=2* fired 1 of 2 planned times; remove it*",
            "[[]unused_fault] kv_server: the fault <sequence * fired 1 of 3 planned times; *",
            "[[]unused_fault] queue: the fault <duplicate * fired 1 of 2 planned times; *",
            "[[]unmet] queue: the prepared responses of 'https://app.test/hook' were given 1 of 2 *",
            "[[]unused_fault] broker: the fault <partial_produce * fired 1 of 2 planned times: *",
            "[[]unmet] kv_server: between(('GET', 'SET')) interrupted nothing. It saw GET. *",
        ]
    )


def test_what_a_closed_fake_left_counts_as_well(run: Run) -> None:
    result = run(
        """
        import pytest

        def test_fault(fakecloud):
            with fakecloud.broker(name="second") as second:
                second.faults.drop()

        def test_expectation(fakecloud):
            with fakecloud.destination() as destination:
                destination.server.expect_oneshot_request("/hook").respond_with_data("")

        def test_all(fakecloud, broker):
            broker.faults.drop()
            fakecloud.close()

        def test_allowed(fakecloud):
            with fakecloud.broker(name="second") as second:
                second.faults.drop()
            fakecloud.allow("unused_fault", handle="second")
        """
    )
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*unused_fault? second: the fault * never fired*",
            "*unmet? destination: the oneshot request was never received*",
            "*unused_fault? broker: the fault * never fired*",
        ]
    )


def test_a_bug_of_the_fake_shows_its_traceback(run: Run) -> None:
    result = run(
        """
        import requests

        def test_bug(broker, monkeypatch):
            def broken(request):
                raise ZeroDivisionError("in the engine")

            monkeypatch.setattr(broker._app, "facts", lambda request: {})
            table = broker._app.table
            table.routes = tuple(route._replace(endpoint=broken) for route in table.routes)
            answer = requests.get(broker.url + "/topics", auth=(broker.username, broker.password))
            assert answer.status_code == 500
            assert "error" in answer.json()
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*ZeroDivisionError: in the engine",
            "*[[]bug] broker: GET /topics made the fake itself fail: ZeroDivisionError(*",
        ]
    )


def test_a_failing_test_keeps_its_own_failure_and_gets_the_rest_as_well(run: Run) -> None:
    result = run(
        UNROUTED
        + """
        def test_it(broker):
            wander(broker)
            assert 1 == 2
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*assert 1 == 2", "*[[]unrouted] broker got GET /nope*"])
    assert "the test passed, but" not in result.stdout.str()


def test_other_outcomes_stay_as_they_are(run: Run) -> None:
    run(
        UNROUTED
        + """
        def test_skipped(broker):
            wander(broker)
            pytest.skip("half way")

        @pytest.mark.xfail(strict=True)
        def test_left_a_problem(broker):
            wander(broker)

        @pytest.mark.xfail(strict=True)
        def test_fails_itself(broker):
            wander(broker)
            assert 0

        @pytest.mark.xfail
        def test_left_nothing(broker):
            pass
        """
    ).assert_outcomes(skipped=1, xfailed=2, xpassed=1)


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

            def test_left_a_problem(self):
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


def test_an_attempt_to_an_unstubbed_host_fails_but_publishing_does_not(run: Run) -> None:
    result = run(
        """
        def test_published(queue):
            queue.publish("https://nobody.example.com/hook", json={})

        def test_attempted(queue):
            queue.publish("https://nobody.example.com/hook", json={})
            queue.deliver_due()
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["[[]unstubbed] *https://nobody.example.com/hook*"])
