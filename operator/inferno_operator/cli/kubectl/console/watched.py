"""The objects of a namespace as they are now: one list and one watch of each kind for all pages.

If each page listed them anew, a page would cost as much as the namespace is large, here and at the
API server.
"""

from collections.abc import Callable, Sequence

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.resources import SYSTEM_RESOURCES, Plan, Resource
from inferno_operator.resources.objects import kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.cache import Decode, ObjectDifference
from inferno_operator.runtime.informer import RELIST
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.errors import UnavailableError

KINDS: Sequence[type[Resource]] = (*SYSTEM_RESOURCES, Plan)

LISTED_S = 60.0
"""How long a page waits for the lists [s]."""

RECOVERED_S = 2 * RELIST.limit
"""How long a page waits for lists that failed, such as while an API server starts [s]."""


class WatchedNamespace:
    """Follows the objects of a namespace.

    Parameters
    ----------
    session
        The namespace, and the rights of a person.
    changed
        Called at each change.
    decode
        Decodes what was read.
    """

    def __init__(
        self, session: Session, changed: Callable[[ObjectDifference], None], decode: Decode
    ) -> None:
        self._session = session
        informers = Informers(session.reader, (session.namespace,), decode)
        self._objects = informers.subscribe(map(kind_of, KINDS), changed)

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        await self._objects.run()

    async def objects(self) -> Sequence[Observation]:
        """Return the objects that are not being deleted.

        The API server is asked first whether the person may still list them.

        Raises
        ------
        InfernoError
            The person may not, or the objects are not known.
        """
        await self._session.check_rights(KINDS)
        trouble = self._objects.trouble
        if trouble and not isinstance(trouble, UnavailableError):
            raise trouble
        await self._objects.complete(RECOVERED_S if trouble else LISTED_S)
        seen = (o for kind in KINDS for o in self._objects.observations(kind_of(kind)))
        return [observation for observation in seen if observation.deleted is None]
