"""What is kept of prompts and contexts, and what it cannot be used for."""
