"""The endpoints under ``/arriero/``, the page among them."""
