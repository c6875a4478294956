"""Why a command does not run: controlled trials, in as few launches as can be.

:func:`run_diagnosis` is the procedure. It is given a :class:`Problem` and knows the world by three
protocols: a :class:`Runner` that starts trials, a :class:`Forecast` of sizes, a :class:`Reporter`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
