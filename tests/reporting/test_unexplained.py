"""If a part of a report raises an exception, one line replaces it, whatever the test's objects do."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from ..harness import Run, apart

LAZY = """
import respx  # what makes the plugin look for who kept requests away
evaluated = []

class Lazy:
    '''What Django's SimpleLazyObject does: everything that is asked of it goes to the real thing.'''

    def __getattribute__(self, name):
        evaluated.append(name)
        raise RuntimeError("settings are not configured")

    def __eq__(self, other):
        raise RuntimeError("compared")

    __hash__ = None

lazy = Lazy()

def test_it(kv_server):
    evaluated.clear()  # pytest itself asks when it collects
    with respx.mock:
        assert kv_server is None

def test_untouched():
    assert evaluated == []
"""


def went_on(run: Run, source: str, *options: str, failed: int = 1, passed: int = 1) -> str:
    """Return the output of a run, after checking that it reported its failures and ran the next
    test.
    """
    result = run(f"{textwrap.dedent(source)}\n\ndef test_after():\n    pass\n", *options)
    result.assert_outcomes(failed=failed, passed=passed)
    text = "\n".join([*result.outlines, *result.errlines])
    assert "INTERNALERROR" not in text
    return text


def test_a_lazy_object_of_the_tests_module_is_never_evaluated(run: Run) -> None:
    pytest.importorskip("respx")
    text = went_on(run, LAZY, passed=2)
    assert "kv_server received no request; respx was active in this test" in text
    assert "could not be made" not in text


def test_a_lazy_object_among_the_arguments_of_an_error_is_not_evaluated(run: Run) -> None:
    text = went_on(
        run,
        """
        class Lazy:
            @property
            def __class__(self):
                raise RuntimeError("asked for its class")
            def __repr__(self):
                return "lazy"

        class Odd(Exception):
            args = None

        def test_it(kv_server):
            raise ValueError("no", Lazy())

        def test_odd(kv_server):
            raise ExceptionGroup("several", [Odd()])
        """,
        failed=2,
    )
    assert "could not be made" not in text


WORDLESS = """
    import pytest, requests

    class Silent(Exception):
        def __str__(self):
            raise self

    class Wordless(requests.exceptions.ConnectionError):
        def __str__(self):
            {}

    def test_it(kv_server):
        raise Wordless()
    """
RAISING = {
    "str of an error": WORDLESS.format('raise RuntimeError("no words")'),
    "outcome of pytest in the str of an error": WORDLESS.format('pytest.skip("no words")'),
    "exit in the str of an error": WORDLESS.format("raise SystemExit(3)"),
    "an error whose own text raises": WORDLESS.format("raise Silent()"),
    "predicate of allow": """
    import requests

    def refuses(path):
        raise RuntimeError("no predicate")

    def test_it(kv_server, fakecloud):
        requests.post(f"{kv_server.url}/nowhere/at/all", headers=kv_server.headers, json={"a": 1})
        fakecloud.violations().clear()
        fakecloud._context.violations.report("unrouted", "nothing there", path="/x")
        fakecloud.allow("unrouted", path=refuses)
        assert False
    """,
}


UNREADABLE = """
    import requests

    class Dynamic(requests.exceptions.ConnectionError):
        def __getattr__(self, name):
            if name == "failed_request":  # pytest itself asks for others
                raise RuntimeError(f"no {name}")
            raise AttributeError(name)

    def test_it(kv_server):
        error = Dynamic("Connection refused by Responses")
        del error.request
        raise error
    """


def test_an_error_whose_request_cannot_be_read_is_one_without(run: Run) -> None:
    text = went_on(run, UNREADABLE)
    assert "could not be made" not in text
    assert "no client has made a call" in text


@pytest.mark.parametrize("kind", RAISING)
def test_what_raises_is_one_line_of_the_report(run: Run, tmp_path: Path, kind: str) -> None:
    options = f"--fakecloud-report={tmp_path}", f"--fakecloud-record={tmp_path}"
    text = went_on(run, RAISING[kind], *options)
    lines = re.findall(r".*(?:could not be made|cannot be shown).*", text)
    assert 1 <= len(lines) <= 3
    assert "fakecloud" in text


TOLD: dict[str, tuple[str, list[str]]] = {
    "a check for violations that cannot be made": (
        """
        def refuses(path):
            raise RuntimeError("no predicate")

        def test_it(kv_server, fakecloud):
            fakecloud._context.violations.report("unrouted", "nothing there", path="/x")
            fakecloud.allow("unrouted", path=refuses)
        """,
        ["the check for strict-mode violations could not be made: path=refuses raised",
         "raised RuntimeError('no predicate') for '/x'"],
    ),
    "a fault whose predicate has no repr": (
        """
        class When:
            def __call__(self, request):
                return False
            def __repr__(self):
                raise RuntimeError("no repr")

        def test_it(kv_server):
            kv_server.faults.respond(500, when=When())
        """,
        ["never fired"],
    ),
    "one call that cannot be told": (
        """
        def test_it(kv_server, fakecloud):
            client = kv_server.client()
            client.set("first", "1")
            client.set("second", "2")
            fakecloud.journal.calls()[0].facts["words"] = [7]
            assert False
        """,
        ["this entry cannot be shown: TypeError", "SET second 2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "said"), TOLD.values(), ids=TOLD)
def test_the_rest_is_told(run: Run, source: str, said: list[str]) -> None:
    text = went_on(run, source)
    assert [line for line in said if line not in text] == []


@pytest.mark.parametrize("url", ["http://\u2100/", "http://[", "http://[::1", "http://a:b/"])
def test_a_destination_that_no_parser_takes_has_its_row(run: Run, tmp_path: Path, url: str) -> None:
    text = went_on(
        run,
        f"""
        import requests

        def test_it(queue):
            requests.post(
                f"{{queue.url}}/v2/batch",
                headers=queue.headers,
                json=[{{"destination": {url!r}, "body": "x"}}],
            )
            queue.run_until_idle()
            assert False
        """,
        f"--fakecloud-report={tmp_path}",
    )
    assert "could not be made" not in text
    assert list(tmp_path.glob("*.html"))


def test_a_recording_that_cannot_be_made_is_a_warning(run: Run, tmp_path: Path) -> None:
    result = run(
        """
        import requests

        def test_it(kv_server, fakecloud):
            kv_server.client().set("a", "1")
            call = fakecloud.journal.calls()[0]
            call.request_headers = 7

        def test_after():
            pass
        """,
        f"--fakecloud-record={tmp_path}",
    )
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*the recording of*test_it*could not be written: AttributeError*"])


@pytest.mark.parametrize("error", ["OSError(24, 'Too many open files')", "ContractError('no')"])
def test_early_fakes_that_cannot_start_are_a_usage_error(
    pytester: pytest.Pytester, error: str
) -> None:
    """For example, the machine has no free port or file fake."""
    pytester.makeini("[pytest]\nfakecloud_early = kv_server")
    pytester.makepyfile(
        fails=f"""
        import pytest_fakecloud.cloud.cloud as module
        from pytest_fakecloud.core.errors import ContractError

        def refuse(self, fixture, settings, listeners):
            raise {error}

        module.BaseCloud._start_service = refuse
        """
    )
    pytester.syspathinsert()
    result = apart(pytester, "-pfails")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*fakecloud_early: *"])
    assert "Traceback" not in result.stderr.str()


@pytest.mark.parametrize("mode", ["running", "frozen"])
def test_a_failure_at_the_end_of_time_is_told(run: Run, tmp_path: Path, mode: str) -> None:
    text = went_on(
        run,
        f"""
        import pytest

        @pytest.mark.fakecloud(now="9999-12-31T23:59:59.999Z", clock={mode!r})
        def test_it(kv_server, queue):
            kv_server.client().set("a", "1", ex=60)
            queue.publish("https://app.test/", delay="1d")
            assert False
        """,
        f"--fakecloud-report={tmp_path}",
        f"--fakecloud-record={tmp_path}",
    )
    assert "could not be made" not in text
    assert "9999-12-31" in text
    # There are a recording, a page with its JSON, and the index of pages.
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".har", ".html", ".html", ".json"]
