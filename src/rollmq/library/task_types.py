"""What a task's signature says about its payload and result: JSON that fits, or an error that shows why.

The payload is a JSON object with the arguments by name; what was not given is not in it, so that the worker's
default holds. The result is JSON too. msgspec reads and writes both; nothing is ever unpickled.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from rollmq.errors import ArgumentsWrong, TaskProblem

CONTENT_TYPE: Final = "application/json"


class TaskTypes:
    """The types of one function. Made on first use: until then its module may still be being imported."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)
        self.shown = f"{name}{self._signature}"
        """The signature as its author wrote it."""
        hints = _hints_of(name, function)
        self._arguments = _struct_of(name, self._signature, hints)
        try:
            self._read_arguments = msgspec.json.Decoder(self._arguments).decode
            self._read_result = msgspec.json.Decoder(hints.get("return", Any)).decode
        except (TypeError, RecursionError) as error:
            raise TaskProblem(
                f"{self.shown} cannot be a task: {error}. Use types that JSON can hold."
            ) from error
        self._write = msgspec.json.Encoder().encode

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The payload for a call. Raises ArgumentsWrong for what does not fit."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise ArgumentsWrong(signature=self.shown, reason=str(error)) from error
        try:
            payload = self._write(given)
            # As the worker will: a type that does not fit is found where the mistake is.
            self._read_arguments(payload)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise ArgumentsWrong(signature=self.shown, reason=_in_words(error)) from error
        return payload

    def call_of(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) of a payload. Raises ValueError."""
        try:
            read = self._read_arguments(payload or b"{}")
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(_in_words(error)) from error
        given = {
            name: value
            for name, field in zip(self._signature.parameters, self._arguments.__struct_fields__, strict=True)
            if (value := getattr(read, field)) is not msgspec.UNSET
        }
        bound = inspect.BoundArguments(self._signature, given)
        return bound.args, bound.kwargs

    def result_bytes(self, value: object) -> bytes:
        """A result as JSON. Raises ValueError for what does not fit the return type."""
        try:
            written = self._write(value)
            self._read_result(written)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(_in_words(error)) from error
        return written

    def result_of(self, data: bytes) -> Any:
        """A result as the value that it was. Raises ValueError."""
        try:
            return self._read_result(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(_in_words(error)) from error


def _hints_of(name: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise TaskProblem(f"the types of {name} cannot be read: {error}.") from error


def _struct_of(name: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A struct with a field per parameter. Fields have names of ours, for a parameter may have any."""
    fields: list[tuple[str, Any, Any]] = []
    renamed: dict[str, str] = {}
    for number, parameter in enumerate(signature.parameters.values()):
        kind = hints.get(parameter.name, Any)
        field = f"field_{number}"
        renamed[field] = parameter.name
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            kind = types.GenericAlias(list, (kind,))
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kind = types.GenericAlias(dict, (str, kind))
        elif parameter.default is inspect.Parameter.empty:
            fields.append((field, kind, msgspec.NODEFAULT))
            continue
        # Not given is not the same as the default: that is the worker's to say.
        fields.append((field, kind | msgspec.UnsetType, msgspec.UNSET))
    try:
        return msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, rename=renamed
        )
    except (TypeError, ValueError) as error:
        raise TaskProblem(f"{name}{signature} cannot be a task: {error}.") from error


def _in_words(error: Exception) -> str:
    """msgspec names the place as $.width."""
    return str(error).replace("`$.", "`").rstrip(".")
