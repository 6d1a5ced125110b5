"""What can go wrong with the control plane.

ControlPlaneError
├── BinaryError       a program was neither found nor could be built
├── ProgramError      a program ended, or did not start
├── ApiError          the API server refused a request, or did not answer
├── KubectlError      kubectl failed
└── WaitTimeoutError  what was waited for did not happen in time
"""


class ControlPlaneError(RuntimeError):
    """Anything that keeps the control plane from doing what was asked; line one says what."""


class BinaryError(ControlPlaneError):
    """A program was neither found nor could be built."""


class ProgramError(ControlPlaneError):
    """A program ended, or did not start."""


class ApiError(ControlPlaneError):
    """The API server refused a request, or did not answer."""


class KubectlError(ControlPlaneError):
    """Kubectl ended with an error, or did not end."""


class WaitTimeoutError(ControlPlaneError):
    """What was waited for did not happen in time."""
