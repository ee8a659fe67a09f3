"""The documentation builds without a warning, which says that every link within it leads somewhere."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import DOCS

NEEDED = ("sphinx", "furo", "myst_parser", "sphinx_copybutton", "sphinx_design")


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the extra docs is not installed: no {', '.join(missing)}")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (built.returncode, built.stderr) == (0, "")
    assert (tmp_path / "index.html").exists()
