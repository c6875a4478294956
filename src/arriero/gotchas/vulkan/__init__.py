"""Limits of a Vulkan device other than its memory."""
