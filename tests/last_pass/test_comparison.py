"""Test the comparison of a failing test with its last passing run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ..harness import quiet_but

QUIET = quiet_but("cacheprovider")
"""Options for runs that need the cache of pytest."""
OTHERWISE = "first did otherwise here: "
TEST = """
import os, time, uuid

def test_order(kv_server, queue):
    broken = os.environ.get("BROKEN", "")
    with kv_server.client() as redis:
        redis.set("stock:7", "3")
        redis.set(f"session:{uuid.uuid4()}", time.time())
        exec(broken or os.environ.get("WHOLE", "redis.incr('sold:7')"))
        if "pass" not in broken:
            redis.set("done", "yes")
    assert not broken
"""


class Runs:
    """Runs one test again and again; a run with other code at its middle fails."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester, self._environ = pytester, monkeypatch
        pytester.makepyfile(test_it=TEST)

    def passing(self, *arguments: str) -> None:
        self._environ.delenv("BROKEN", raising=False)
        self._run(*arguments).assert_outcomes(passed=1)

    def failing(self, broken: str, *arguments: str) -> str:
        """Return what the terminal shows, on one line."""
        self._environ.setenv("BROKEN", broken)
        result = self._run(*arguments)
        result.assert_outcomes(failed=1)
        return " ".join(result.stdout.str().split())

    def _run(self, *arguments: str) -> pytest.RunResult:
        return self._pytester.runpytest(*QUIET, "--fakecloud-report=pages", *arguments)

    def page(self) -> dict[str, Any]:
        """Return the data of the failing run's page."""
        [path] = (self._pytester.path / "pages").glob("test_it*.html")
        text = path.read_text(encoding="utf-8")
        data: dict[str, Any] = json.loads(
            text.partition('id="report">')[2].partition("</script>")[0]
        )
        return data


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(pytester, monkeypatch)


@pytest.mark.parametrize(
    ("broken", "says"),
    {
        "another key": ("redis.incr('sold:8')", f"{OTHERWISE}INCR sold:7 <-- 1"),
        "another command": ("redis.decr('sold:7')", f"{OTHERWISE}INCR sold:7 <-- 1"),
        "one call too many": (
            "redis.get('new'); redis.incr('sold:7')",
            f"{OTHERWISE}INCR sold:7 <-- 1",
        ),
        "one call too few": ("None", f"{OTHERWISE}INCR sold:7 <-- 1"),
        "another value": ("redis.incrby('sold:7', 2)", f"{OTHERWISE}INCR sold:7 <-- 1"),
        "ends early": (
            "redis.incr('sold:7') # pass",
            "last passing run of this test then went on with SET done yes <-- OK",
        ),
    }.values(),
    ids=str,
)
def test_the_first_row_that_differs_is_named(broken: str, says: str, runs: Runs) -> None:
    runs.passing()
    assert says in runs.failing(broken)
    page = runs.page()
    assert page["findings"][-1]["kind"] == "differs_from_pass"
    assert page["beside"]["title"] == "The last passing run"
    [marked] = (row for row in page["beside"]["report"]["rows"] if row["findings"])
    assert marked["text"]["what"] in says


def test_the_row_that_differs_in_a_long_run_is_listed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = "for number in range(90): redis.set(f'other:{number}', 1)"
    monkeypatch.setenv("WHOLE", f"redis.set('sold:7', 1)\n{calls}")
    runs.passing()
    assert "SET sold:7 2" in runs.failing(f"redis.set('sold:7', 2)\n{calls}")


def test_ids_and_times_do_not_differ(runs: Runs) -> None:
    runs.passing()
    runs.failing("redis.incr('sold:7')")
    assert "differs_from_pass" not in str(runs.page()["findings"])
    assert runs.page()["beside"]["report"]["rows"]


def test_times_of_any_precision_do_not_differ(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHOLE", "redis.set('at', '1795950318.7475774')")
    runs.passing()
    runs.failing("redis.set('at', '1795950319.25')")
    assert "differs_from_pass" not in str(runs.page()["findings"])


def test_a_row_after_the_end_of_the_passing_run(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHOLE", "redis.incr('sold:7')")
    runs.passing()
    shown = runs.failing("redis.incr('sold:7'); redis.set('done', 'yes')")
    assert "the last passing run of this test had ended before this row" in shown


def test_the_last_passing_run_counts(
    runs: Runs, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.passing()
    monkeypatch.setenv("WHOLE", "redis.incr('sold:9')")
    runs.passing()
    if os.name == "posix":
        [file] = pytester.path.rglob(".pytest_cache/d/fakecloud/*.json")
        assert file.stat().st_mode & 0o777 == 0o600
    runs.failing("redis.incr('sold:1')")
    assert f"{OTHERWISE}INCR sold:9 <-- 1" in runs.failing("redis.incr('sold:2')")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"rows": 1}'])
def test_without_a_passing_run_nothing_is_said(
    content: str, runs: Runs, pytester: pytest.Pytester
) -> None:
    """A file that cannot be used is the same as none."""
    folder = pytester.path / ".pytest_cache" / "d" / "fakecloud"
    folder.mkdir(parents=True)
    (folder / "test_it.py-test_order.json").write_text(content)
    shown = runs.failing("redis.incr('sold:8')")
    assert "passing run" not in shown
    assert "beside" not in runs.page()


@pytest.mark.parametrize("is_unittest", [False, True])
def test_a_passed_subtest_is_no_passing_run(
    is_unittest: bool, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(pytest, "Subtests"):
        pytest.skip("this pytest has no subtests")
    body = """
    redis, broken = kv_server.client(), os.environ.get("BROKEN")
    for step in ("a", "b", "c"):
        with SUBTEST(step=step):
            redis.set(step, "1")
    redis.get("x" if broken else "a")
    assert broken != "test"
    with SUBTEST(step="last"):
        assert broken != "subtest"
    kv_server.faults.drop(command="GET") if broken else None
"""
    head = "import os\nimport unittest\nimport pytest\n"
    if is_unittest:
        source = (
            f"{head}class TestIt(unittest.TestCase):\n"
            "  @pytest.fixture(autouse=True)\n"
            "  def fakes(self, kv_server):\n    self.kv_server = kv_server\n"
            "  def test_it(self):\n    kv_server = self.kv_server"
            + body.replace("SUBTEST", "self.subTest")
        )
    else:
        source = f"{head}def test_it(kv_server, subtests):" + body.replace(
            "SUBTEST", "subtests.test"
        )
    pytester.makepyfile(test_it=source)
    pytester.runpytest(*QUIET, "--fakecloud-report=pages").assert_outcomes(passed=1)
    for broken in ("subtest", "test"):
        monkeypatch.setenv("BROKEN", broken)
        result = pytester.runpytest(*QUIET, "--fakecloud-report=pages")
        text = " ".join(result.stdout.str().split())
        assert "the test passed" not in text
        assert "the last passing run of this test had ended" not in text
    # Not the broken run before this one.
    assert "GET x" in text
    assert OTHERWISE in text


def test_without_the_cache_nothing_is_kept(runs: Runs, pytester: pytest.Pytester) -> None:
    runs.passing("-p", "no:cacheprovider")
    assert "passing run" not in runs.failing("redis.incr('sold:8')", "-p", "no:cacheprovider")
    assert not list(pytester.path.rglob("fakecloud"))


def test_only_a_run_with_pages_is_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TEST)
    pytester.runpytest(*QUIET).assert_outcomes(passed=1)
    assert not list(Path(pytester.path).rglob("fakecloud"))


def test_a_run_whose_teardown_fails_is_not_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
import pytest

@pytest.fixture
def redis(kv_server):
    redis = kv_server.client()
    yield redis
    assert redis.get("state") == "closed"

def test_order(redis):
    redis.set("state", "open")
"""
    )
    for _ in range(2):
        result = pytester.runpytest(*QUIET, "--fakecloud-report=pages")
        result.assert_outcomes(passed=1, errors=1)
        assert "passing run" not in result.stdout.str()


@pytest.mark.parametrize("outcome", ["pytest.skip()", "pytest.xfail()"])
def test_a_skipped_run_is_not_kept(
    outcome: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHOLE", f"import pytest; {outcome}")
    monkeypatch.delenv("BROKEN", raising=False)
    runs._run()
    assert "passing run" not in runs.failing("redis.incr('sold:8')")


TEARDOWN = """
import os
import pytest

@pytest.fixture
def redis(kv_server):
    redis = kv_server.client()
    yield redis
    redis.set("state", "closed")
    assert os.environ["BROKEN"] != "teardown"

def test_order(redis):
    redis.set("state", "open")
    assert os.environ["BROKEN"] != "test"
"""


@pytest.mark.parametrize("broken", ["teardown", "test"])
@pytest.mark.parametrize("scope", ["function", "session"])
def test_rows_of_a_teardown_are_not_compared(
    scope: str, broken: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_it=TEARDOWN)
    options = (*QUIET, "--fakecloud-report=pages", "-o", f"fakecloud_scope={scope}")
    for value in ("", broken):
        monkeypatch.setenv("BROKEN", value)
        result = pytester.runpytest(*options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "passing run" not in result.stdout.str()
