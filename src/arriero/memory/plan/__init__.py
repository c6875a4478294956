"""One plan: a file for each component, which makes lines from frozen inputs."""
