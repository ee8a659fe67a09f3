"""Tests with hostile input, crowds of clients, thousands of clouds, and processes that die.

Each module has a short run for the normal suite and a long one, marked ``long``: ``python -m pytest
tests/robustness -m long``.
"""
