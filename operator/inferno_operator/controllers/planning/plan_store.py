"""The Plans of all namespaces: in memory from a watch, and written to the API server."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from inferno_operator.controllers.planning.ports import OPTIMIZER, PLAN, SERVER, KeySource
from inferno_operator.controllers.planning.proposal import (
    DigestCheck,
    Proposal,
    Seal,
    spec_manifest,
)
from inferno_operator.controllers.planning.updates import Update
from inferno_operator.resources import API_VERSION, Optimizer, Plan, Server
from inferno_operator.resources.objects import Key, Manifest, Now
from inferno_operator.resources.observation import Observation, observe, of_kind, only, readable
from inferno_operator.runtime.informers import Subscription
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import Writer
from inferno_optimizer.errors import InfernoError

FOLLOWED = PLAN, OPTIMIZER, SERVER
"""The kinds that a `PlanStore` reads from memory."""

PATIENCE_SECONDS = 10.0
"""Seconds until the Plans must be known."""


class PlanStore:
    """The Plans that there are.

    Parameters
    ----------
    objects
        The objects of the kinds in `FOLLOWED`.
    cluster
        Where Plans are written.
    now
        The time of day.
    key
        Gives the key with which the operator signs its Plans.
    """

    def __init__(self, objects: Subscription, cluster: Cluster, now: Now, key: KeySource) -> None:
        self._objects = objects
        self._cluster = cluster
        self._key = key
        self._digests = DigestCheck()
        self._writer = Writer(cluster, FieldManager.DECISIONS, now)

    def trouble(self) -> InfernoError | None:
        """Return why Plans are not known, such as that their kind is not installed."""
        return self._objects.trouble

    async def plans(self, namespace: str) -> Sequence[Observation[Plan]]:
        """Return the Plans of a namespace that the operator made and that are not being deleted.

        The oldest come first.

        Raises
        ------
        UnavailableError
            They are not known now.
        """
        return (await self._read(namespace))[0]

    async def strangers(self, namespace: str) -> Sequence[Observation[Plan]]:
        """Return the other Plans of a namespace: somebody else made them, or none can read them."""
        return (await self._read(namespace))[1]

    async def _read(
        self, namespace: str
    ) -> tuple[list[Observation[Plan]], list[Observation[Plan]]]:
        """Return the Plans that the operator made, the oldest first, and the others."""
        await self._objects.complete(PATIENCE_SECONDS)
        seal = Seal(await self._key())
        ours: list[tuple[object, Observation[Plan]]] = []
        others: list[Observation[Plan]] = []
        for observation in of_kind(self._objects.observations(PLAN, namespace), Plan):
            plan = observation.resource
            if observation.deleted is not None:
                continue
            if plan and self._made(plan, seal):
                ours.append((plan.order, observation))
            else:
                others.append(observation)
        ours.sort(key=lambda pair: pair[0])  # type: ignore[arg-type,return-value]
        return [observation for _, observation in ours], others

    def _made(self, plan: Plan, seal: Seal) -> bool:
        """Whether the operator made a Plan; the digest of a finished one is not computed again."""
        return seal.signed(plan) and (plan.is_finished or self._digests.is_right(plan))

    def history(self, namespace: str) -> Mapping[str, int]:
        """Return how many finished Plans each Optimizer of a namespace keeps."""
        optimizers = readable(self._objects.observations(OPTIMIZER, namespace))
        return {o.metadata.name: o.spec.history for o in only(Optimizer, optimizers)}

    def servers(self, namespace: str) -> Iterator[Observation[Server]]:
        """Return the Servers of a namespace as the watch has shown them; it may be behind."""
        return of_kind(self._objects.observations(SERVER, namespace), Server)

    async def create(self, optimizer: Optimizer, proposal: Proposal) -> Observation[Plan]:
        """Create and sign a Plan that is deleted together with its Optimizer."""
        key = Key(optimizer.metadata.namespace, await self._name(optimizer))
        owner = {
            "apiVersion": API_VERSION,
            "kind": Optimizer.kind,
            "name": optimizer.metadata.name,
            "uid": optimizer.metadata.uid,
            "controller": True,
        }
        metadata = {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]}
        header = {"apiVersion": API_VERSION, "kind": Plan.kind, "metadata": metadata}
        seal, uid = Seal(await self._key()), optimizer.metadata.uid
        signature = seal.signature(key, uid, proposal.spec.digest)
        manifest = {**header, "spec": {**spec_manifest(proposal.spec), "signature": signature}}
        return self._written(await self._cluster.apply(PLAN, manifest, FieldManager.DECISIONS))

    async def write(self, observation: Observation[Plan], update: Update) -> Observation[Plan]:
        """Write the status of a Plan, and return the Plan after the write."""
        manifest = await self._writer.write(update)
        return observation if manifest is None else self._written(manifest)

    async def delete(self, observation: Observation[Plan]) -> None:
        """Delete a Plan."""
        await self._cluster.delete(observation.reference)

    def _written(self, manifest: Manifest) -> Observation[Plan]:
        self._objects.written(PLAN, manifest, echo=True)
        return observe(Plan, manifest)

    async def _name(self, optimizer: Optimizer) -> str:
        """Return the next free name: that of the Optimizer, with a number.

        A name that somebody else took is left out; it does not say where to count on.
        """
        name = optimizer.metadata.name
        plans, strangers = await self._read(optimizer.metadata.namespace)
        keys = (o.reference.key.name.rpartition("-") for o in plans)
        numbers = [int(number) for owner, _, number in keys if owner == name and number.isdigit()]
        taken = {o.reference.key.name for o in strangers}
        names = (f"{name}-{number}" for number in count(max(numbers, default=0) + 1))
        return next(free for free in names if free not in taken)
