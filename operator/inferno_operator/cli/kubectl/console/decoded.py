"""Decodes an object once for all people who read it, each with a token of their own."""

from weakref import WeakValueDictionary

from inferno_operator.resources import Resource
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.observation import Observation, observe


class DecodedObjects:
    """The objects that somebody has read, as long as somebody keeps them.

    Nobody gets an object that the API server did not return to a read with that person's own token:
    what is shared is the form in memory of what two of them read. The API server gives each object
    a uid, and each version of it a number (kubernetes.io/docs/reference/using-api/api-concepts).
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[str, str], Observation] = WeakValueDictionary()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._known)

    def decode(self, kind: type[Resource], manifest: Manifest) -> Observation:
        """Return an object that was read, decoded; the same for each who read this version."""
        metadata = manifest["metadata"]
        version = metadata["uid"], metadata["resourceVersion"]
        found = self._known.get(version)
        if found is None:
            found = self._known[version] = observe(kind, manifest)
        return found
