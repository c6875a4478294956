from .budget import plan_budget as plan_budget
from .calibration import Calibration as Calibration
from .hparams import UnknownArchitectureError as UnknownArchitectureError
from .pools import parse_pools as parse_pools
