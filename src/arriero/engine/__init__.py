"""One llama.cpp installation: find, identify, flags it accepts, devices, dry run."""

from typing import TYPE_CHECKING

from arriero.base.late import late

if TYPE_CHECKING:
    from arriero.engine.devices import ListedDevice as ListedDevice
    from arriero.engine.devices import list_devices as list_devices
    from arriero.engine.devices import parse_devices as parse_devices
    from arriero.engine.features import compiled_for as compiled_for
    from arriero.engine.features import is_binary as is_binary
    from arriero.engine.find import find_engine as find_engine
    from arriero.engine.installation import Engine as Engine
    from arriero.engine.version import BuildSource as BuildSource
    from arriero.engine.version import Version as Version
    from arriero.engine.version import parse_version as parse_version
else:
    __getattr__ = late(
        __name__,
        devices="ListedDevice list_devices parse_devices",
        features="compiled_for is_binary",
        find="find_engine",
        installation="Engine",
        version="BuildSource Version parse_version",
    )
