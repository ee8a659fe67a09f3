"""The fakes of a cloud that is explored: their data, their connections, and the disturbances in them."""
