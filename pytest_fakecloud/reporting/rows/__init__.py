"""The rows of a report: how they are made, nested and described."""
