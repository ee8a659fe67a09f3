"""Search: indexes, their other names, and what is asked of them."""
