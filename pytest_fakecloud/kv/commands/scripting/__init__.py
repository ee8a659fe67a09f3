"""Scripts and function libraries."""
