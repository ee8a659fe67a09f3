"""Other projects' test suites, run against a real server and against the database port.

They are not part of this repository: ``python -m tests.kv.suites`` takes the path of an unpacked
source.
"""
