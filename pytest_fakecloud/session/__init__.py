"""One pytest run: its settings, the current test, and the cloud that outlives the tests."""
