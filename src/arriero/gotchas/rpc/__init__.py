"""Workers, and state that the server reads back from a device."""
