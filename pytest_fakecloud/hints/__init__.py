"""Hints about mistakes of set-up: requests that did not arrive, variables, names, clocks."""
