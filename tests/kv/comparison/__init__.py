"""Real servers held against the engine: seeded random commands and hand-written ones.

`python -m tests.kv.comparison --commands 100000` prints the difference rate per group.
"""
