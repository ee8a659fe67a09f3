"""Compares a real service with the fake: runs the same scenarios on both and lists the differences.

``command`` is the command ``pytest-fakecloud verify --kv URL --token TOKEN``, ``run.verify()``
makes the comparison, and ``catalogue`` contains the scenarios. A run uses only names with a random
prefix, deletes what it created, and stays within the limits of a free plan.
"""

RUN_SECONDS = 900.0
"""Default time limit of a run in seconds."""
