"""Hints about failed tests: requests that did not reach their fake, and common mistakes."""
