"""Measurements whose figures are ratios between callables timed in interleaved rounds of one run.

Absolute times depend on the machine. The printed figures and their limits are therefore ratios: to
the cheapest implementation the platform allows, or to another library.
"""
