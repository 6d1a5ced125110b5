"""The error tree: every error that we raise on purpose is an InfernoError.

```
InfernoError
├── InputError          a document, manifest or option that cannot be used as it is
├── UnsupportedError    a request that this version cannot carry out
├── SolverError         the solver broke or gave no usable answer
└── UnavailableError    something outside does not answer; a later try may succeed
```

Infeasible is no error: a server without an allocation is part of a `Solution`.
"""


class InfernoError(Exception):
    """Base of all our errors; its text is one line that a person can act on."""

    reason = "Error"
    """CamelCase word for a condition, an event or a REST answer."""


class InputError(InfernoError):
    """What was given cannot be read: the text names the object and the field."""

    reason = "InvalidSpec"


class UnsupportedError(InfernoError):
    """What was asked for is understood, but this version cannot do it."""

    reason = "Unsupported"


class SolverError(InfernoError):
    """A solver failed in a way that says nothing about the problem."""

    reason = "SolverFailed"


class UnavailableError(InfernoError):
    """Something outside does not answer for now; the same call may succeed later."""

    reason = "Unavailable"
