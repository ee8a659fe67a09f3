"""What the services share and that knows no HTTP: clock, journal, ids, errors, credentials, waiting."""
