"""Injected faults: the plan with which tests inject them, the faults, and the responses they send."""
