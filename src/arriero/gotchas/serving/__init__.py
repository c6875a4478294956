"""What the server does once it listens."""
