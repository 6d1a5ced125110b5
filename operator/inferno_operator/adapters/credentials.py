"""Messages about credential files that cannot be used; none shows what a file contains."""

from inferno_optimizer.errors import UnavailableError


def unusable(url: str, error: Exception) -> UnavailableError:
    """Return the error of a request to a URL whose credentials cannot be used.

    A file that is missing may be in the process of being replaced.
    """
    problem = str(error)
    if isinstance(error, FileNotFoundError):
        problem = f"{error.filename} does not exist: mount its Secret or ConfigMap again"
    return UnavailableError(f"{url}: credentials cannot be used: {problem}")
