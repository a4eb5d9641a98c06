"""The base of everything that is a line of the canonical state. It holds no behaviour."""

from typing import Final

import msgspec

NO_BYTES: Final = b""
"""The one empty bytes object of the state. A default is left out by identity, and Python can make other
empty bytes; with one of those, replicas would encode the same state differently."""


class Record(msgspec.Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"):
    """One line of the canonical state: `kind` says which, defaults are left out, unknown fields refused."""
