"""The in-memory index: namespaces, matrices, ranking, and when changes become visible."""
