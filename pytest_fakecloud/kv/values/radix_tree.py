"""Counts the nodes of the radix tree in which Redis would store the nodes of a stream, for XINFO."""

from __future__ import annotations

from itertools import groupby


def node_count(keys: list[bytes], depth: int = 0) -> int:
    """Return the nodes of a compressed radix tree of sorted keys, from byte ``depth`` on."""
    if not keys:
        return 0
    if len(keys) == 1:
        return 1 + (depth < len(keys[0]))
    common = depth
    while keys[0][common] == keys[-1][common]:
        common += 1
    nodes = 1 + (common > depth)
    for _, branch in groupby(keys, key=lambda key: key[common]):
        nodes += node_count(list(branch), common + 1)
    return nodes
