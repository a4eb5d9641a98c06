"""Every error a user can meet. The message says what happened, where, what changed, what to do."""


class RollmqError(Exception):
    """The base of all errors of rollmq."""


# --- wire -----------------------------------------------------------------------------------------


class ProtocolError(RollmqError):
    """The other side sent what the protocol does not allow. The message was dropped; nothing was changed.

    `code` is that of the Error frame which answers it; when `closes`, the bytes behind it cannot be
    trusted and the connection ends, otherwise it goes on with the next frame.
    """

    def __init__(
        self, *, code: str, text: str, closes: bool, request_id: bytes = bytes(16), request_type: int = 0
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.closes = closes
        self.request_id = request_id
        self.request_type = request_type


class MessageTooLarge(RollmqError):
    """A message of ours is over a limit of the protocol. It was not sent; nothing was changed."""

    def __init__(self, *, part: str, size: int, size_max: int) -> None:
        super().__init__(
            f"the message's {part} has {size:,} bytes, at most {size_max:,} are allowed. Nothing was sent. "
            f"Make it smaller, or store the data elsewhere and send a reference to it."
        )
