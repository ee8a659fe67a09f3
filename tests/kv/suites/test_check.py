"""``--check``: the figures of a page, compared with those that a run of a suite measured."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kv.suites import __main__ as command
from tests.kv.suites import page, redis
from tests.kv.suites.servers import Outcome

FIDELITY = Path(__file__).parents[3] / "docs" / "fidelity" / "index.md"


@contextlib.contextmanager
def _server(name: str) -> Iterator[str]:
    yield name


def _check(
    monkeypatch: pytest.MonkeyPatch, path: Path, fake: list[Outcome], real: Outcome, *more: str
) -> int:
    """Run the command with a suite of one unit; ``fake`` are the outcomes of its attempts."""
    attempts = iter(fake)

    def run(source: Path, *, port: str, unit: str, limit: float) -> Outcome:
        return real if port == "real" else next(attempts)

    suite = SimpleNamespace(TITLE="Mine", units=lambda source: ["unit"], run=run)
    monkeypatch.setitem(command.SUITES, "redis", suite)
    servers = {name: lambda name=name: _server(name) for name in ("real", "fake")}
    monkeypatch.setattr(command, "SERVERS", servers)
    path.write_text("| Suite | Real | Fake |\n|---|---|---|\n| Mine, 1.0 | 3 | 2 |\n", "utf-8")
    return command.main(["redis", str(path.parent), "--check", str(path), *more])


ALL = Outcome(["a", "b", "c"])
TWO = Outcome(["a", "b"], ["c"])


def test_the_figures_of_the_page_have_to_be_those_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    assert _check(monkeypatch, path, [TWO], ALL) == 0
    for fake, real in ((ALL, ALL), (Outcome(["a"]), ALL), (TWO, TWO), (TWO, Outcome(list("abcd")))):
        capsys.readouterr()
        assert _check(monkeypatch, path, [fake], real) == 1
        assert "says that the fake passes 2 of 3 tests; measured: " in capsys.readouterr().out


def test_a_run_without_a_test_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(monkeypatch, tmp_path / "page.md", [Outcome()], Outcome()) == 1
    assert "no test passed on the real server" in capsys.readouterr().out


def test_a_unit_runs_again_while_tests_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "page.md"
    other = Outcome(["a", "c"], ["b"])
    assert (
        _check(monkeypatch, path, [Outcome(["a"], ["b", "c"]), TWO, TWO], ALL, "--attempts=3") == 0
    )
    # Between them, both attempts pass all tests, so there is no third one.
    assert _check(monkeypatch, path, [TWO, other], ALL, "--attempts=3") == 1


def test_single_units_cannot_be_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        _check(monkeypatch, tmp_path / "page.md", [], ALL, "unit")


def test_a_page_without_the_row_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("| Other | 3 | 2 |\n", "utf-8")
    with pytest.raises(LookupError, match="0 rows"):
        page.figures(path, "Mine")


@pytest.mark.parametrize("suite", command.SUITES.values(), ids=command.SUITES)
def test_the_fidelity_page_has_the_figures(suite: SimpleNamespace) -> None:
    real, fake = page.figures(FIDELITY, suite.TITLE)
    assert real >= fake > 300


def test_the_fidelity_page_gives_a_reason_for_each_missing_test() -> None:
    real, fake = page.figures(FIDELITY, redis.TITLE)
    reasons = FIDELITY.read_text("utf-8").split("does not pass these tests of Redis' suite")[1]
    cells = re.findall(r"^\| (\d[^|]*)\|", reasons, re.M)
    assert sum(int(number) for cell in cells for number in re.findall(r"(\d+) of ", cell)) == (
        real - fake
    )
