"""What is under ``/arriero/``: status, incidents, metrics and the page."""
