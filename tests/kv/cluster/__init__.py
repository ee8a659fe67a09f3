"""Clusters and sentinels: the fake as clients see it, and compared with real servers."""
