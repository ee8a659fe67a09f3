"""Workflow runs: their steps, their log, and the events they wait for."""
