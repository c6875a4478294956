"""What a command means to llama-server: the only reader and editor of that meaning."""

from typing import TYPE_CHECKING

from arriero.base.late import late

if TYPE_CHECKING:
    from arriero.launch.launch import Launch as Launch
    from arriero.launch.launch import launch_of as launch_of
    from arriero.launch.launch import request_of as request_of
    from arriero.launch.params import EngineParams as EngineParams
    from arriero.launch.params import ProjectorParams as ProjectorParams
    from arriero.launch.serving import Mode as Mode
    from arriero.launch.serving import Serving as Serving
    from arriero.launch.serving import serving_of as serving_of
    from arriero.launch.slots import AUTO_SLOTS as AUTO_SLOTS
    from arriero.launch.slots import Slots as Slots
    from arriero.launch.slots import slots_of as slots_of
else:
    __getattr__ = late(
        __name__,
        launch="Launch launch_of request_of",
        params="EngineParams ProjectorParams",
        serving="Mode Serving serving_of",
        slots="AUTO_SLOTS Slots slots_of",
    )
