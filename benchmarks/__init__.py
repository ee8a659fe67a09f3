"""Benchmarks that print ratios of times measured in turns in one run.

Absolute times depend on the machine, so the figures and their limits are ratios: the fakes compared
with the minimum that the platform allows, or with another library.
"""
