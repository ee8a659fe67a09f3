"""What is explored: the code, its promises, and the options of the caller."""
