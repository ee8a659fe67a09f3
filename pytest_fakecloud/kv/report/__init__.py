"""The parts of reports that are about a key-value server."""
