"""Pictures of a page, in SVG."""
