"""Runs explored code once, under one schedule."""
