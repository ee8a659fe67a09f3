"""Injected faults: their kinds, the plan that tests use, and the table that applies them to
requests.
"""
