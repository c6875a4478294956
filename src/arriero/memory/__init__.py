"""What a command will take, before it is started."""

from arriero.memory.budget import plan_budget as plan_budget
from arriero.memory.calibration import Calibration as Calibration
from arriero.memory.hparams import UnknownArchitectureError as UnknownArchitectureError
from arriero.memory.pools import parse_pools as parse_pools
from arriero.memory.settings import Settings as Settings
from arriero.memory.settings import request_of as request_of
from arriero.memory.settings import settings_of as settings_of
