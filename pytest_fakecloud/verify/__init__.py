"""Compare a real service with the fake: run the same scenarios on both and list the differences.

``command`` is the command ``pytest-fakecloud verify --kv URL --token TOKEN``, ``run.verify()`` the
comparison, ``catalogue`` the scenarios. A run writes only under a random prefix, cleans up after
itself and stays within the limits of a free plan.
"""
