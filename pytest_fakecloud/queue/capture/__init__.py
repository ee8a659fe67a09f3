"""The receiver of callbacks, and what it received."""
