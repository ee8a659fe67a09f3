"""The in-memory broker: logs, placement, quotas, and consumer groups over them."""
