"""Watch Servers in every operator, also in one that does not lead, and answer for them."""

from collections.abc import Iterable, Sequence

from inferno_operator.controllers.actuation.publication.plan import Published, publish
from inferno_operator.controllers.actuation.release import SERVER
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, GoneError, Listing, Reader
from inferno_optimizer.errors import InfernoError, UnavailableError


class Publication:
    """The decisions for all Servers, as the API server has them.

    Parameters
    ----------
    reader
        The API server.
    namespaces
        The namespaces to watch; if empty, all.
    """

    def __init__(self, reader: Reader, namespaces: Sequence[str]) -> None:
        self._published: dict[Key, Published] = {}
        self._informer = Informer(reader, [SERVER], namespaces, self)

    async def run(self) -> None:
        """Watch Servers until cancelled."""
        await self._informer.run()

    def unready(self) -> str:
        """Return why decisions are not known; "" if they are."""
        return next((_trouble(error) for error in self._informer.missing.values()), "")

    def decision(self, key: Key) -> Published:
        """Return what is published of a Server.

        Raises
        ------
        UnavailableError
            The Servers of the namespace are not known now.
        GoneError
            There is no such Server.
        """
        for (_, namespace), error in self._informer.missing.items():
            if namespace in ("", key.namespace):
                raise UnavailableError(_trouble(error))
        try:
            return self._published[key]
        except KeyError:
            raise GoneError(f"Server {key} does not exist") from None

    def decisions(self) -> Iterable[Published]:
        """Return what is published, in the order of the keys; the last state if a watch failed."""
        return [self._published[key] for key in sorted(self._published)]

    def listed(self, listing: Listing) -> None:
        """Take a list of all Servers."""
        found = {Key.of(manifest): manifest for manifest in listing.manifests}
        for key in self._published.keys() - found.keys():
            if listing.namespace in ("", key.namespace):
                del self._published[key]
        for key, manifest in found.items():
            self._take(key, manifest)

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of a Server."""
        del kind
        if change.manifest is None:
            return
        key = Key.of(change.manifest)
        if change.gone:
            self._published.pop(key, None)
        else:
            self._take(key, change.manifest)

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: the informer knows what is missing until the next list."""

    def _take(self, key: Key, manifest: Manifest) -> None:
        observation = observe(Server, manifest)
        if observation.deleted is not None:
            self._published.pop(key, None)
        else:
            self._published[key] = publish(observation, self._published.get(key))


def _trouble(error: InfernoError | None) -> str:
    return f"decisions are not known: {error or 'the list of Servers is awaited'}"
