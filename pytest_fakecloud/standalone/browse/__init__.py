"""Lists of a fake's data for the console, in pages that the server searches, filters and counts."""
