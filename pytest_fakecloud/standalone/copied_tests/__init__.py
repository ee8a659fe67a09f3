"""Tests that make a recorded call or delivery again, in several languages.

`plan` says what such a test does, as data; `in_pytest`, `in_vitest` and `in_go` write it.
"""
