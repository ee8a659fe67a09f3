"""Pages of a fake's data for the console, searched, filtered and counted by the server."""
