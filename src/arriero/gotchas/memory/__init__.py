"""What is allocated at the start, and what grows while serving."""
