"""The test suites of others, run against a real server and against the database port.

Nothing of them is in this repository: ``python -m tests.kv.suites`` takes the path of an unpacked
source.
"""
