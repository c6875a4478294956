"""The inner half of the dry run: a program of its own that needs only the standard library.

It loads one engine's ``libllama.so``, builds models and contexts with ``no_alloc`` and asks the
library how much each buffer type would hold. It shares nothing with the process that started it,
so an abort, a hang or a wild read here costs one child. `engine.oracle` starts this folder by its
path; ``arriero`` is then not importable, and the modules import each other relatively.

Nothing is assumed from a build number. The parameter structs are recognised by the default values
that the library itself fills in (`layouts`), the buffer structs by values that the library puts
there (`buffers`), and every answer is checked against what the context says about itself
(`contradiction`).
"""
