"""Fakes from outside their process: the control API, the console, recordings, remote clouds."""
