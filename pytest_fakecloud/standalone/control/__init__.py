"""The control API, one module per resource."""
