"""One pytest run: its settings, the current test, the cloud that outlives tests, and the outcomes."""
