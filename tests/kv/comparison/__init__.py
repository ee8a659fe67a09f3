"""Random and hand-written commands, compared between the engine and real servers.

`python -m tests.kv.comparison --commands 100000` prints the rate of differences per group.
"""
