from .calibration import Calibration as Calibration
from .dry_runs import DryRuns as DryRuns
from .hparams import UnknownArchitectureError as UnknownArchitectureError
from .planner import Planner as Planner
from .pools import parse_pools as parse_pools
