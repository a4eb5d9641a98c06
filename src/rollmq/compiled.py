"""What the compiled build must be told of a class (docs/decisions/0011-compiled-core.md). It does nothing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_said: Any) -> Any:
        """`allow_interpreted_subclasses=True`: somebody outside of the compiled modules inherits from it."""
        return lambda cls: cls
