"""What the lines of one process say, gathered start by start.

A process may start several times in one log (a restart loop). Within one start, allocator messages,
the line that says whose buffer it was, and what the server says when it gives up belong together:
they make one cause. ``verdict`` picks the failure among the causes.

What a line does, by the act of its row, is in ``requests``, ``failures``, ``ends``, ``sizes`` and
``life``; ``acts`` says which function takes which act.
"""

from arriero.logs.story.cause import Cause
from arriero.logs.story.process import Process
from arriero.logs.story.start import Start
from arriero.logs.story.story import Story

__all__ = ["Cause", "Process", "Start", "Story"]
