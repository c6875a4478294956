"""JSON Schemas of the documents, for programs that read them."""

from __future__ import annotations

from typing import Any

import msgspec

from arriero.base.errors import UsageError
from arriero.record.files import SCHEMAS, document_type


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document by its name, such as ``diagnosis``.

    Raises:
        UsageError: There is no document of that name.
    """
    if name not in SCHEMAS:
        raise UsageError(f"no document {name!r}", hint=f"known are {', '.join(SCHEMAS)}")
    kind = document_type(name)
    (top,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    # The tag has a default in the type; in a document it is always there.
    own = parts[kind.__name__]
    own["required"] = ["schema", *own.get("required", [])]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": parts}
