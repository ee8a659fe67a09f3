"""What a cloud is: fakes that share one clock and one seed, and the run of pytest that makes them."""
