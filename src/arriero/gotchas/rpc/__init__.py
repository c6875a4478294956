"""Workers, and state that has to come back from a device."""
