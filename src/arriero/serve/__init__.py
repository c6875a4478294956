"""A llama-server that stays up: supervisor, proxy, metrics and a page.

``http`` moves bytes on both sides, ``apis`` knows what they mean, ``requests`` leads each request
through its life, ``supervisor`` keeps the engine alive, ``control`` shows all of it under
``/arriero/``.
"""
