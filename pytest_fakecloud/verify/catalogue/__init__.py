"""What is asked of a real service and of the fake, service by service, as data."""
