"""Files of commands that do not say what their writer meant."""
