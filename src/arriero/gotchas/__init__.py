"""What is known to break: one file for each gotcha, and matching a command against them."""

from arriero.gotchas.facts import Facts as Facts
from arriero.gotchas.facts import bytes_of as bytes_of
from arriero.gotchas.facts import certain as certain
from arriero.gotchas.matching import Matched as Matched
from arriero.gotchas.matching import match as match
from arriero.gotchas.matching import repair as repair
from arriero.gotchas.matching import repaired as repaired
from arriero.gotchas.registry import Entry as Entry
from arriero.gotchas.registry import Registry as Registry
from arriero.gotchas.registry import registry as registry
from arriero.gotchas.verdicts import Standing as Standing
