"""Everything that reaches into the process around the fakes: client libraries, sleeps and clocks."""
