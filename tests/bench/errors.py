"""What keeps a case from being measured."""


class NotSupportedError(Exception):
    """This version cannot do what is to be measured."""
