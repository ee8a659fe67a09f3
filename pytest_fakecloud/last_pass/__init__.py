"""The comparison of a failing test with its last passing run."""
