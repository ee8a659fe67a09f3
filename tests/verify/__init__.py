"""The comparison with real services, against ones that are at hand and ones that lie."""
