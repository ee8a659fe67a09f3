"""The replay of a journal on new fakes, for the data at each row of a report."""
