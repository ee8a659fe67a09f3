"""Judging a trial: the checks of the promise, and the patterns of anomalies.

``judge`` returns the verdict. ``anomalies`` has the table of patterns, which ``locks``, ``repetitions``,
``lost_effects`` and ``serial`` find in the ``evidence``, with the help of ``losses`` and ``services``.
"""
