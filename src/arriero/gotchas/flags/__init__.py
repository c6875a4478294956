"""Flags that the engine refuses or understands differently."""
