"""One pytest run: its settings, the current test, the clouds of the fixtures, and the outcomes."""
