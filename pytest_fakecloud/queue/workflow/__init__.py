"""Workflow runs, with their steps, their log, and the events they wait for."""
