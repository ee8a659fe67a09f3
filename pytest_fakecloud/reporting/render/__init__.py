"""The forms of a report: text, JSON and page."""
