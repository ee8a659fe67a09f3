"""Judging a trial: the checks of the promise, and the patterns of anomalies."""
