"""The histories in the reports of small applications, each with a bug.

Each file in ``apps/`` is an application with a bug and the test that fails because of it; the text
file next to it is the beginning of the expected
report, and the property of JUnit's XML.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import pytest

from ...harness import QUIET
from ...notations import golden
from ..planted.test_bugs import report

pytestmark = pytest.mark.slow

APPS = Path(__file__).parent / "apps"
NAMES = sorted(path.stem for path in APPS.glob("*.py"))


class Properties:
    """Collects the properties of the reports of a run, which JUnit's XML contains."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.values.update(report.user_properties)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("impatient")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_report_begins_with_the_history(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"jobs": "rq", "plans": "upstash_workflow"}.get(name, "pytest"))
    # Some examples have test files of the same names.
    monkeypatch.delitem(sys.modules, f"test_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    properties = Properties()
    gc.freeze()  # The collection below only inspects objects of this run.
    pytester.makepyfile(**{f"test_{name}": (APPS / f"{name}.py").read_text(encoding="utf-8")})
    result = pytester.runpytest_inprocess(*QUIET, plugins=[properties])
    gc.collect()
    result.assert_outcomes(failed=1)
    text = report(result.outlines).partition("\n\n")[0]
    history = properties.values["fakecloud_history"]
    golden(APPS / f"{name}.txt", "\n".join([text, "== in JUnit", history, ""]))
