"""The base of everything that is a line of the canonical state. It holds no behaviour."""

import msgspec


class Record(msgspec.Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"):
    """One line of the canonical state: `kind` says which, defaults are left out, unknown fields refused."""
