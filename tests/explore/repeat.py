"""Run each test of a page many times, in fresh processes, and compare what the explorations print:
``python -m tests.explore.repeat [docs/guides/explore.md [20]]``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ..docs.blocks import ROOT, Block, Page

_PLUGIN = """
from pathlib import Path
from pytest_fakecloud import Cloud

explore = Cloud.explore

def explore_and_note(cloud, *args, **options):
    try:
        result = explore(cloud, *args, **options)
    except BaseException as error:
        result = error
        raise
    finally:
        with Path("texts.txt").open("a", encoding="utf-8") as texts:
            print(result, file=texts)
    return result

Cloud.explore = explore_and_note
"""
"""A plugin that notes what each exploration returns or raises."""
_DURATION = re.compile(r"\bin [\d.,]+ (s|ms|min)\b")


def _run(folder: Path, block: Block) -> str:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    texts = folder / "texts.txt"
    texts.unlink(missing_ok=True)
    options = ["-q", "-pno:cacheprovider", "-prepeated", *block.options, block.file]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == int(block.fails), f"{block}: {done.stdout}{done.stderr}"
    return _DURATION.sub("in 0.1 s", texts.read_text(encoding="utf-8")) if texts.exists() else ""


def main(name: str = "docs/guides/explore.md", times: str = "20") -> int:
    """Print for each test how many distinct texts there were; return 1 if any had several."""
    page, differs = Page.read(ROOT / name), False
    for block in page.blocks:
        if not block.tests or block.missing:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            (path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
            (path / "repeated.py").write_text(_PLUGIN, encoding="utf-8")
            for file in (block, *(other for other in page.blocks if other.name)):
                (path / file.file).parent.mkdir(parents=True, exist_ok=True)
                (path / file.file).write_text(file.source, encoding="utf-8")
            texts = Counter(_run(path, block) for _ in range(int(times)))
        print(f"{block}: {len(texts)} text(s) in {times} runs", flush=True)
        if len(texts) > 1:
            differs = True
            print(*(f"{count} times:\n{text}" for text, count in texts.items()), sep="\n")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
