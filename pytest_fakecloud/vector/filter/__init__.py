"""The metadata filter: its grammar, and predicates compiled from it."""
