"""Similarity of vectors, and embedding of text: shared by the services that search by vectors."""
