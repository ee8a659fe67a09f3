"""Kinds of values that a test can give as a condition, besides plain values."""
