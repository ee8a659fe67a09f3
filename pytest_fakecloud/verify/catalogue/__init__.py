"""The scenarios of the comparison: a text file for each service, and their reader."""
