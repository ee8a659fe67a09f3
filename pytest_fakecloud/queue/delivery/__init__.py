"""Who answers a request of the queue: real HTTP, applications, mocks, prepared answers."""
