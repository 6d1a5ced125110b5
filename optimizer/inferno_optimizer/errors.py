"""The error tree: every error that Inferno raises on purpose is an InfernoError.

```
InfernoError
├── InputError          a document, manifest or option is invalid
├── UnsupportedError    this version does not support the request
├── SolverError         the solver failed or gave no usable answer
├── CalibrationError    measurements do not determine the performance parameters
└── UnavailableError    an external system does not answer; a retry may succeed
```

An infeasible system is not an error: a `Solution` may have servers without an allocation.
"""


class InfernoError(Exception):
    """Base of all errors of Inferno; the text is one line that says what to do."""

    reason = "Error"
    """CamelCase reason for conditions, events and REST responses."""


class InputError(InfernoError):
    """The input is invalid; the text names the object and the field."""

    reason = "InvalidSpec"


class UnsupportedError(InfernoError):
    """The request is valid, but this version does not support it."""

    reason = "Unsupported"


class SolverError(InfernoError):
    """A solver failed; the failure does not say whether the problem is feasible."""

    reason = "SolverFailed"


class CalibrationError(InfernoError):
    """Measurements do not determine the performance parameters; the text says what would."""

    reason = "NotCalibrated"


class UnavailableError(InfernoError):
    """An external system does not answer; the same call may succeed later."""

    reason = "Unavailable"
