"""The in-memory index: namespaces, matrices, ranking, and the visibility of changes."""
