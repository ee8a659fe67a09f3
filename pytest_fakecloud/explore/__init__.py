"""Is there any order of failures, delays and duplicates in which code breaks? The smallest one."""
