"""What the plans controller needs of others."""

from typing import Protocol


class KeySource(Protocol):
    """Gives the key with which the operator signs its Plans."""

    async def __call__(self) -> bytes:
        """Return the key.

        Raises
        ------
        InfernoError
            It cannot be read now.
        """
