"""The data of a fake, page by page, for the console: found, filtered and counted by the server."""
