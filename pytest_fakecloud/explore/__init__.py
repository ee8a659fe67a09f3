"""Exploration of interleavings and failures: find the smallest schedule that breaks a promise."""
