"""The benchmarks: all of them run, their output, and the comparison of two commits."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import commits, plots, report, site
from benchmarks.__main__ import main
from benchmarks.part import QUICK, TOOLS, known
from benchmarks.timing import (
    Curve,
    Figure,
    Results,
    Row,
    Table,
    compare,
    curve,
    limit,
    line,
    results,
)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Results:
    """Return empty results."""
    for name, value in vars(Results()).items():
        monkeypatch.setattr(results, name, value)
    return results


def benchmarks(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, **more,
    )  # fmt: skip


def refusal(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Return the error of the command for invalid arguments."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    return capsys.readouterr().err


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "holds", "bound"),
    [
        (Figure("a", 2, "x", most=2), True, "at most 2x"),
        (Figure("a", 2.1, "x", most=2), False, "at most 2x"),
        (Figure("a", 5, "", least=5), True, "at least 5"),
        (Figure("a", 4.9, "", least=5), False, "at least 5"),
        (Figure("a", 1e9), True, "no limit"),
    ],
)
def test_a_figure_and_its_limit(figure: Figure, holds: bool, bound: str) -> None:
    assert (figure.holds, figure.bound) == (holds, bound)


def test_a_missed_limit_is_told_and_kept(
    fresh: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line("good", 1.0, 2.0)
    assert not limit("bad, ms", 3.0, 2.0)
    told = capsys.readouterr().out.splitlines()
    assert [one[:4] for one in told] == ["ok  ", "MISS"]
    assert [one.label for one in fresh.figures] == ["good", "bad, ms"]


def test_a_short_run_gives_no_verdict(fresh: Results, capsys: pytest.CaptureFixture[str]) -> None:
    fresh.quick = True
    assert limit("bad, ms", 3.0, 2.0)
    assert "MISS" not in capsys.readouterr().out


def test_every_round_calls_everything(fresh: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # it is slow in a large suite
    calls: list[str] = []
    table = compare(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
        rounds=4, calls=2, title="both", missing={"c": "not installed"},
    )  # fmt: skip
    assert (calls.count("a"), calls.count("b")) == (9, 9)  # one is the warm-up
    assert [len(row.rounds) for row in table.rows] == [4, 4]
    assert fresh.tables == [table]
    assert str(table).splitlines()[-1] == "c  not installed"
    fresh.quick = True
    assert len(compare({"a": lambda: None}, rounds=40, calls=300)["a"].rounds) == 3


def test_ratios_and_spread() -> None:
    table = Table([Row("a", (1.0, 2.0, 3.0, 4.0), 1), Row("b", (4.0, 4.0, 4.0, 4.0), 1)])
    assert table.ratio("b", "a") == 4.0
    assert table.typical_ratio("b", "a") == pytest.approx((2 + 4 / 3) / 2)
    assert table["a"].p50 == 2.5
    assert table["a"].spread == pytest.approx((3.25 - 1.75) / 2.5)
    assert table["b"].spread == 0
    assert Row("once", (1.0,), 1).spread == 0
    with pytest.raises(KeyError, match="there are: a, b"):
        table["c"]


# -- pictures and tables ---------------------------------------------------------------------------

PART = {
    "part": "kv",
    "figures": [
        {"label": "x & y", "value": 1.5, "unit": "x", "limit": "at most 2x", "holds": True},
        {"label": "z", "value": 3.0, "unit": "", "limit": "at most 2", "holds": False},
    ],
    "tables": [
        {
            "title": "A <table>",
            "rows": [{"name": "ours", "p50_us": 12.0}, {"name": "theirs & co", "p50_us": 1200.0}],
            "missing": {"peer": "not installed"},
        },
        {"title": "", "rows": [{"name": "ours", "p50_us": 1.0}], "missing": {}},
    ],
    "curves": [{"title": "growth", "work": "keys", "series": {"GET": [[100, 2.0], [1000, 2.1]]}}],
}


def test_pictures_are_svg_and_to_scale(tmp_path: Path) -> None:
    drawn = plots.draw([PART], tmp_path)
    paths = [drawn[title] for title in ("growth", "A <table>")]
    assert len(drawn) == 2
    assert [path.name for path in paths] == ["kv-growth.svg", "kv-a-table.svg"]
    trees = [ElementTree.parse(path).getroot() for path in paths]
    ns = "{http://www.w3.org/2000/svg}"
    texts = [[one.text for one in tree.iter(f"{ns}text")] for tree in trees]
    assert {"growth, microseconds each", "keys", "GET", "100", "1,000"} <= set(texts[0])
    assert {"A <table>, median", "theirs & co", "1,200.0 us", "peer", "not installed"} <= set(
        texts[1]
    )
    widths = [float(one.get("width", 0)) for one in trees[1].iter(f"{ns}rect")][1:]
    # From 10 to 10,000 microseconds: 12 is at 0.026 of the axis, 1,200 at 0.693.
    assert widths[1] / widths[0] == pytest.approx(0.693 / 0.026, rel=0.05)


def test_all_figures_are_one_table() -> None:
    lines = report.figures([PART]).splitlines()
    assert lines[0].split() == ["kv", "x", "&", "y", "1.50x", "at", "most", "2x", "ok"]
    assert lines[1].endswith("MISS")


def test_the_page_has_every_figure_and_table() -> None:
    part = json.loads(json.dumps(PART))
    for table in part["tables"]:
        for row in table["rows"]:
            row |= {"best_us": 10.0, "spread": 0.5, "ratio": 1.0}
    whole = {"machine": report.machine(), "quick": False, "parts": [part]}
    lines = site.text(whole, {"growth": "plots/growth.svg"}).splitlines()
    for expected in (
        "## kv",
        "| x & y | 1.50x | at most 2x | holds |",
        "| z | 3.00 | at most 2 | missed |",
        "### kv: A <table>",
        "| theirs & co | 1,200.0 | 10.0 | 50% | 1.00x |",
        "| peer | not installed | | | |",
        "![growth](plots/growth.svg)",
    ):
        assert expected in lines


def test_the_machine_is_described() -> None:
    found = report.machine()
    assert found["cpu"]
    assert found["versions"]["pytest"] == pytest.__version__
    text = report.described(found)
    assert f"{os.cpu_count()} cores" in text
    assert "pytest-httpserver" in text


def test_curves_are_kept(fresh: Results) -> None:
    assert curve("growth", "keys", {"GET": [(1, 2.0)]}) == Curve(
        "growth", "keys", {"GET": [(1, 2.0)]}
    )
    assert len(fresh.curves) == 1


# -- the command -----------------------------------------------------------------------------------


def test_every_module_is_a_part_or_a_tool() -> None:
    for path in (ROOT / "benchmarks").glob("[!_]*.py"):
        has_main = "\ndef main() -> int:" in path.read_text("utf-8")
        assert (path.stem in known()) != (path.stem in TOOLS)
        assert has_main or path.stem in TOOLS, path.stem
    assert set(QUICK) <= set(known())


def test_the_site_shows_a_full_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--site", "--quick"], ["--site", "kv"]):
        assert "--site shows all parts, and measured in full" in refusal(words, monkeypatch, capsys)
    whole = json.loads(site.FIGURES.read_text("utf-8"))
    assert not whole["quick"]
    assert {part["part"] for part in whole["parts"]} <= set(known())
    shown = site.page()
    for picture in plots.places(whole["parts"]).values():
        place = f"../images/benchmarks/{picture}"
        assert f"({place})" in shown
        assert (site.FIGURES.parent / place).exists()


def test_an_unknown_part_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["nothing"], ["compare", "HEAD", "HEAD", "nothing"]):
        assert "nothing is unknown; known are: kernel, start" in refusal(words, monkeypatch, capsys)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="some parts read /proc")
@pytest.mark.parametrize("name", known())
def test_every_part_runs(name: str, tmp_path: Path) -> None:
    """Small sizes without limits: this only detects broken benchmarks."""
    out = tmp_path / "out.json"
    done = benchmarks(name, "--quick", "--json", str(out), "--plots", str(tmp_path / "plots"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    whole = json.loads(out.read_text("utf-8"))
    assert whole["machine"]["python"]
    (part,) = whole["parts"]
    assert part["part"] == name
    assert part["figures"] or part["curves"]
    assert all(one["holds"] is None for one in part["figures"])
    drawn = len(list((tmp_path / "plots").glob("*.svg")))
    assert bool(drawn) == bool(part["curves"] or [one for one in part["tables"] if one["title"]])


# -- two commits -----------------------------------------------------------------------------------


def test_ratios_are_medians_of_pairs() -> None:
    pairs = [
        ({"a": 1.0, "gone": 1.0}, {"a": 2.0}),
        ({"a": 10.0, "gone": 1.0}, {"a": 10.0}),
        ({"a": 4.0, "gone": 1.0}, {"a": 6.0}),
    ]
    assert commits.ratios(pairs) == {"a": (4.0, 6.0, 1.5)}


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the source distribution has no commits")
def test_two_commits_are_measured_and_leave_nothing() -> None:
    def folders() -> set[str]:
        words = ["git", "worktree", "list", "--porcelain"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        return {one for one in done.stdout.splitlines() if one.startswith("worktree ")}

    before = folders()
    done = benchmarks("compare", "HEAD", "HEAD", "curves", "--quick", "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        one for one in done.stdout.splitlines() if "key-value commands: GET at 1,000 keys" in one
    ]
    assert len(rows) == 1
    assert 0.1 < float(rows[0].split("x")[0]) < 10
    assert folders() <= before
