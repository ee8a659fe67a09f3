"""The parts of reports that are about a queue."""
