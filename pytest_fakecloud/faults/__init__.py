"""Injected faults: the plan that tests use, and the table that applies faults to requests."""
