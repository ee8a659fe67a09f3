"""The engine of a vector index: namespaces, their vectors, and the ranking of hits."""
