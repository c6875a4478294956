"""What a command will take, before it is started."""

from typing import TYPE_CHECKING

from arriero.base.late import late

if TYPE_CHECKING:
    from arriero.memory.budget import plan_budget as plan_budget
    from arriero.memory.calibration import Calibration as Calibration
    from arriero.memory.hparams import UnknownArchitectureError as UnknownArchitectureError
    from arriero.memory.pools import parse_pools as parse_pools
else:
    __getattr__ = late(
        __name__,
        budget="plan_budget",
        calibration="Calibration",
        hparams="UnknownArchitectureError",
        pools="parse_pools",
    )
