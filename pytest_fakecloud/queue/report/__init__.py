"""The parts of reports, console and control API that are about a queue."""
