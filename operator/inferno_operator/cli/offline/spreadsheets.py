"""Tables that a spreadsheet program saved."""

from collections.abc import Sequence

from inferno_optimizer.errors import InputError


def refuse_semicolons(header: Sequence[str], origin: str) -> None:
    """Refuse the table of a spreadsheet that separates columns by semicolons.

    Raises
    ------
    InputError
        The header is one cell that has semicolons.
    """
    if len(header) == 1 and ";" in header[0]:
        raise InputError(f"{origin}:1: the columns are separated by ';': save them with ','")
