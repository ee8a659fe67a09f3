"""The cloud and its process while they are explored: what is replaced, and leads to the simulation."""
