"""Count the blocks of the documentation that the suite runs: ``python -m tests.docs``."""

from __future__ import annotations

from .blocks import pages

blocks = tests = 0
for page in pages():
    here = sum(block.tests for block in page.blocks)
    print(f"{len(page.blocks):5} blocks {here:5} tests  {page.name}")
    for block in page.blocks:
        if block.missing:
            print(f"{'':19} left out: {block}, not installed: {', '.join(block.missing)}")
    blocks, tests = blocks + len(page.blocks), tests + here
print(f"{blocks:5} blocks {tests:5} tests in all")
