"""Test ``verify`` against real servers, served fakes, and fakes with planted differences."""
