"""The parts of reports that are about a broker."""
