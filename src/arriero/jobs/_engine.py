"""An engine as the records have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arriero.record import EngineRecord

if TYPE_CHECKING:
    from arriero.engine import Engine


def engine_record(engine: Engine) -> EngineRecord:
    return EngineRecord(
        path=str(engine.path),
        found_by=engine.found_by,
        version=engine.version,
        build=engine.build,
        commit=engine.commit,
        backends=engine.backends,
    )
