"""The error tree: every error that Inferno raises on purpose is an InfernoError.

```
InfernoError
├── InputError                      a document, manifest or option is invalid
│   ├── InvalidObjectsError         several objects are invalid
│   ├── ManifestError               a manifest is no valid custom resource
│   ├── ConversionError             a backend of a ModelBooster cannot be converted
│   ├── DoesNotFitError             a model does not fit on its cards
│   └── UnreadablePlanError         the decisions of a Plan cannot be read
├── UnsupportedError                this version does not support the request
├── SolverError                     the solver failed or gave no usable answer
│   └── NotFoundError               a remote optimizer does not know a name or a path
├── CalibrationError                measurements do not determine the performance parameters
├── UnavailableError                an external system does not answer; a retry may succeed
│   ├── BusyError                   Prometheus asks for fewer queries
│   └── UnauthenticatedError        the API server does not take a token
├── EngineError                     an engine that is measured does not answer as it should
├── RefusedError                    Prometheus refuses a query, or its answer is another
│   └── OversizedError              the answer is larger than what is read
├── RejectedError                   the API server rejects a request
│   └── UnknownFieldError           the definition of a kind lacks a field of an apply
├── GoneError                       an object or its kind does not exist
│   └── UnscaledError               an object has no number of replicas yet
├── StaleError                      an object changed since it was read
├── ConflictError                   another field manager owns a field
├── LeadershipLostError             another operator leads
├── DefinitionTerminatingError      definitions are being deleted
└── UnfinishedError                 a request that a command follows did not end in time
```

Errors that are not defined here are the operator's. Each has a reason of its own, or that of the
error above it. An infeasible system is not an error: a `Solution` may have servers without an
allocation.
"""

from collections.abc import Sequence


class InfernoError(Exception):
    """Base of all errors of Inferno; the text is one line that says what to do."""

    reason = "Error"
    """CamelCase reason for conditions, events and REST responses."""


class InputError(InfernoError):
    """The input is invalid; the text names the object and the field."""

    reason = "InvalidSpec"

    steps: Sequence[str | int] = ()
    """The keys and the places in lists that lead to the field, where they are known."""


class InvalidObjectsError(InputError):
    """Several objects are invalid.

    Attributes
    ----------
    errors
        What is wrong with each; a command line prints a line for each.
    """

    def __init__(self, errors: Sequence[InputError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


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
