"""An answer that says no."""


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """A request is answered with this status and this JSON instead."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(body)
        self.status = status
        self.body = body

    @classmethod
    def because(cls, status: int, message: str) -> "Refusal":
        """Refuse in the usual form."""
        return cls(status, {"message": message})
