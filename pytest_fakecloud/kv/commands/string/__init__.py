"""String commands, which treat values as bytes or as numbers."""
