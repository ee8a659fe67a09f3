"""Generic key commands, which rename, copy, expire, inspect and sort keys."""
