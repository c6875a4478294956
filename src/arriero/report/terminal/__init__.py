"""Records for a terminal."""

from arriero.report.terminal.layout import Shown, TerminalLayout

__all__ = ["Shown", "TerminalLayout"]
