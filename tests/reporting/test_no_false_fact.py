"""All findings in the examples' tests, which pass, have been checked by a person.

``tests/docs/test_cookbook.py`` checks the findings of the cookbook's recipes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .judged import ALWAYS, COLUMNS, judge, reported

ROOT = Path(__file__).parents[2]
JUDGED = Path(__file__).parent / "judged_facts.txt"


@pytest.mark.slow
def test_every_fact_of_the_examples_was_judged() -> None:
    for name in ("fastapi.testclient", "flask", "redis", "upstash_workflow"):
        pytest.importorskip(name)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", *ALWAYS, "-p", "no:randomly", "-p",
            "no:cacheprovider", "examples",
        ],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": COLUMNS},
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    judge(JUDGED, "examples", done.stdout)


def test_facts_are_read_out_of_a_section() -> None:
    text = (
        "12:00:00.000 --> kv GET a <-- 1\n\nunfinished: msg_1 due\nFindings:\n"
        "- [1] kv: this SET\n  took msg_2\n- queue: nobody called it\n[bug] no\n- not one\n"
        "=== x ===\nFindings: [2] kv: only\n  one\n"
    )
    assert reported(text) == {"kv: this SET took #", "queue: nobody called it", "kv: only one"}


def test_facts_are_judged_under_their_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAKECLOUD_WRITE_GOLDEN", raising=False)
    file = tmp_path / "judged.txt"
    file.write_text("== a\nkv: one\n== b: c\nkv: two\n", encoding="utf-8")
    judge(file, "b: c", "Findings: kv: two\n")
    judge(file, "d", "1 passed\n")
    for title, text in (("a", "kv: two"), ("b: c", "nothing"), ("d", "kv: one")):
        with pytest.raises(pytest.fail.Exception, match=f"`== {title}`"):
            judge(file, title, f"Findings: {text}\n")
    with pytest.raises(pytest.fail.Exception, match="- kv: one"):
        judge(file, "a", "1 passed\n")
    monkeypatch.setenv("FAKECLOUD_WRITE_GOLDEN", "1")
    judge(file, "d", "Findings:\n- kv: six\n- kv: four\n")
    judge(file, "a", "1 passed\n")
    assert file.read_text(encoding="utf-8") == "== b: c\nkv: two\n== d\nkv: four\nkv: six\n"
