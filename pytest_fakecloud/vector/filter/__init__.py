"""The metadata filter: its grammar, predicates compiled from it, and explanations of mismatches."""
