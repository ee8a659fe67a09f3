"""Test what other loggers of pytest show of a report: the terminal, JUnit's XML, annotations."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from ..harness import QUIET, quiet_but

FINDING = "EX 1800000 of lock:7 is 20 days, 20:00:00"
STATEMENT = "last call: SET lock:7 1 NX EX 1800000 <-- OK"
LOCKED = """
def test_lock(kv_server):
    with kv_server.client() as redis:
        redis.set("lock:7", "1", ex=1_800_000, nx=True)
    assert redis is None
"""


@pytest.fixture(autouse=True)
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    pytester.makepyfile(LOCKED)


def test_junit_has_the_statement_and_the_report(pytester: pytest.Pytester) -> None:
    pytester.runpytest(*quiet_but("junitxml"), "--junitxml=junit.xml", "--color=yes")
    [failure] = ET.parse(pytester.path / "junit.xml").iter("failure")
    assert STATEMENT in failure.attrib["message"]
    assert failure.text is not None
    assert "SET lock:7 1 NX EX 1800000" in failure.text
    assert FINDING in failure.text
    assert "#x1B" not in failure.text, "colours are for the terminal"


def test_an_annotation_has_the_statement_below_the_assertion(pytester: pytest.Pytester) -> None:
    """A plugin that annotates failures reads the message of the exception from each report."""
    pytester.makeconftest(
        """
        def pytest_runtest_logreport(report):
            if report.failed:
                print("::error::" + report.longrepr.reprcrash.message)
        """
    )
    result = pytester.runpytest(*QUIET, "-s")
    result.stdout.re_match_lines_random([f"^{STATEMENT}"])
    result.stdout.fnmatch_lines(["*::error::*assert*is None*"])


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["one process", "xdist"])
def test_colours_say_which_lines_matter(
    workers: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    if workers:
        pytest.importorskip("xdist")
    shown = pytester.runpytest(*quiet_but("xdist"), "--color=yes", *workers).stdout.lines
    red = [line for line in shown if line.startswith("\x1b[31m\x1b[1m")]
    assert any(FINDING in line for line in red)
    assert any("SET lock:7 1 NX EX 1800000 [1]" in line for line in red)
    assert not any("kv_server http://" in line for line in red)


def test_without_colour_the_report_is_plain(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest(*QUIET, "--color=no").stdout.str()
    assert FINDING in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("columns", [60, 80])
def test_a_long_name_of_a_test_does_not_break_a_narrow_terminal(
    columns: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    pytester.makepyfile(
        test_long="""
        import pytest

        @pytest.mark.parametrize("name", ["x" * 90, "words and " * 9])
        def test_name(kv_server, name):
            kv_server.client().get("a")
            raise AssertionError
        """
    )
    result = pytester.runpytest(*QUIET, "test_long.py")
    lines = result.stdout.lines
    heads = [number for number, line in enumerate(lines) if line.startswith("clock ")]
    assert len(heads) == 2
    for number in heads:
        assert max(len(line) for line in lines[number - 3 : number + 2]) <= columns
    result.stdout.fnmatch_lines(["*the test's node id*"])
