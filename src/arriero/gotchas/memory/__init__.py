"""Memory that is allocated at the start, and memory that grows while serving."""
