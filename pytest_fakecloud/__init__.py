"""Real HTTP fakes of four cloud services as pytest fixtures."""
