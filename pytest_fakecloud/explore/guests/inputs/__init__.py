"""Drawn inputs of clients: drawing, searching with and shrinking them."""
