"""Limits of a Vulkan device that its memory does not show."""
