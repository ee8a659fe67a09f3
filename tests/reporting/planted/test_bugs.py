"""Bugs in small applications, with the complete report of each.

Each file in ``bugs/`` is an application with a bug and the test that fails because of it; the text
file next to it is the expected report.
"""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest

from ...harness import Run
from ...notations import golden

pytestmark = pytest.mark.slow

BUGS = Path(__file__).parent / "bugs"
NAMES = sorted(path.stem for path in BUGS.glob("*.py"))
HEAD = "--- fakecloud ---"


def report(output: list[str]) -> str:
    """Return the report of the failing test, with values that differ between runs replaced."""
    start = next(number for number, line in enumerate(output) if HEAD in line) + 1
    end = next(
        number
        for number, line in enumerate(output[start:], start)
        if re.match(r"[-=]{3,} .* [-=]{3,}$", line)
    )
    text = "\n".join(output[start:end]) + "\n"
    ports = dict.fromkeys(re.findall(r"(?:127\.0\.0\.1|[a-z_] ):(\d{4,5})\b", text))
    for number, port in enumerate(ports, 1):
        text = text.replace(f":{port}", f":{number}0000")
    text = re.sub(r"(?<=redis-py )[\d.]+", "8.1.0", text)
    return re.sub(r"\d+\.\d s of wall-clock time", "1.2 s of wall-clock time", text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("impatient")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_report_shows_the_cause(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    # Count every wait as sleep, so that the result does not depend on the machine's load.
    monkeypatch.setattr("pytest_fakecloud.pytest_run.observation.MINIMUM_WAIT_SECONDS", 0.0)
    gc.freeze()  # The collection below only inspects objects of this run.
    source = (BUGS / f"{name}.py").read_text(encoding="utf-8")
    result = run(source)
    # Collect the clients that the application left open now, while their warnings are ignored.
    gc.collect()
    result.assert_outcomes(failed=1)
    golden(BUGS / f"{name}.txt", report(result.outlines))


def test_there_are_at_least_sixteen_and_their_reports_are_short() -> None:
    assert len(NAMES) >= 16
    lines = [len((BUGS / f"{name}.txt").read_text("utf-8").splitlines()) for name in NAMES]
    assert sum(lines) <= 22 * len(NAMES)
    assert max(lines) <= 45
