"""What a cloud is: fakes that share one clock and one seed. Each module has a floor of its own."""
