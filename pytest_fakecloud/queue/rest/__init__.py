"""The HTTP interface: one module per family of endpoints, and the payloads they read."""
