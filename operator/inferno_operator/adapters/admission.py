"""`inferno admission`: the API server asks before it stores an object; kubectl prints the answer.

kopf owns the process: it keeps the small kinds in indices, which take time by the square of the
number of objects, serves the webhook and logs in. Nothing here writes to the cluster. An error that
kopf does not survive, such as 404 or 410 to a watch, ends this process alone; Kubernetes starts it
again, and until then objects are stored without a word.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import kopf

from inferno_operator.controllers.planning.mistakes import SMALL_KINDS, find_mistakes
from inferno_operator.resources import GROUP, SYSTEM_RESOURCES, VERSION, Resource
from inferno_operator.resources.observation import Observation, observe
from inferno_optimizer.errors import InputError, UnavailableError

WEBHOOK = "check"
"""The path of the webhook; each kind has a handler of this name."""

LAST_DEFINITION = f"serviceclasses.{GROUP}"
"""The definition that is applied last: with it, kopf looks for all kinds again."""

QUIET = {
    "aiohttp.access": logging.WARNING,
    "kopf.objects": logging.WARNING,
    "asyncio": logging.CRITICAL,
}
"""Levels of loggers that have a line for each answer, or that repeat why kopf ended."""

BACKOFFS_S = 1, 1, 2, 3, 5
"""Pauses after answers such as 403 and 503 [s]; then kopf ends: what it knows is too old."""

EXIT_S = 5.0
"""When kopf kills its process that does not end [s]: a watch may wait for a login for ever."""

SETTLE_S = 0.25
"""How long a mistake must last [s]: what it misses may have been applied a moment ago."""

logger = logging.getLogger(__name__)


def run_admission(port: int, certificate: Path, key: Path) -> None:
    """Answer the API server until SIGTERM or SIGINT.

    Parameters
    ----------
    port, certificate, key
        Where the API server calls, and the certificate with its key (PEM); read anew each minute.

    Raises
    ------
    InputError
        There is no certificate or no key.
    UnavailableError
        There is no access to a cluster. Or kopf ended: the API server gives no answers any more
        that it can use.
    """
    for file in (certificate, key):
        if not file.is_file():
            raise InputError(f"{file}: there is no such file; give a certificate and its key (PEM)")
    server = kopf.WebhookServer(port=port, certfile=certificate, pkeyfile=key)
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    logger.info("answering at port %d", port)
    try:
        kopf.run(registry=Admission(server).registry, clusterwide=True, standalone=True)
    except kopf.LoginError as error:
        raise UnavailableError("no access to a cluster: set KUBECONFIG, or run in a pod") from error
    except Exception as error:
        raise UnavailableError(f"kopf ended, start again: {error!r}") from error


class Admission:
    """What kopf calls, and whether it knows all objects.

    Parameters
    ----------
    server
        Where the API server calls.
    """

    def __init__(self, server: kopf.WebhookServer) -> None:
        self._server = server
        self._is_complete = False
        self.registry = kopf.OperatorRegistry()
        kopf.on.startup(registry=self.registry)(self._configure)
        kopf.on.login(registry=self.registry)(_log_in)
        for kind in SMALL_KINDS:
            selector = GROUP, VERSION, kind.plural
            kopf.index(*selector, registry=self.registry, id=kind.plural)(_keep)
            kopf.on.event(*selector, registry=self.registry, id="listed")(self.note_complete)
        for kind in SYSTEM_RESOURCES:
            kopf.on.validate(
                *(GROUP, VERSION, kind.plural),
                registry=self.registry,
                id=WEBHOOK,
                operations=["CREATE", "UPDATE"],
            )(self.check)

    async def _configure(self, settings: kopf.OperatorSettings, **_: object) -> None:
        settings.admission.server = self._server
        settings.posting.enabled = False
        settings.process.ultimate_exiting_timeout = EXIT_S
        settings.networking.error_backoffs = BACKOFFS_S
        definitions = "apiextensions.k8s.io", "customresourcedefinitions"
        settings.watching.field_selectors[definitions] = f"metadata.name={LAST_DEFINITION}"

    async def note_complete(self, **_: object) -> None:
        """Compare objects with others from now on."""
        self._is_complete = True  # kopf handles no event before it has listed all kinds

    async def check(
        self, body: kopf.Body, warnings: list[str], old: kopf.Body | None = None, **indices: object
    ) -> None:
        """Refuse what no later object can make right; warn of all else that is wrong."""
        observation = _observe(body)
        if observation.deleted is not None:
            return
        if observation.resource is None:
            if old is None or old.get("spec") != body.get("spec"):
                raise kopf.AdmissionError(observation.problem, code=422)
            warnings.append(observation.problem)
            return
        try:
            if self._find_mistakes(observation, indices):
                await asyncio.sleep(SETTLE_S)
                warnings += self._find_mistakes(observation, indices)
        except Exception:  # kopf would refuse the object
            logger.exception("nothing is said about %s", observation.reference)

    def _find_mistakes(
        self, observation: Observation, indices: Mapping[str, object]
    ) -> Sequence[str]:
        """Return the messages of the conditions that the object would have."""
        namespace, others = observation.reference.key.namespace, list[Observation]()
        for kind in SMALL_KINDS if self._is_complete else ():
            index = cast("kopf.Index[str, Observation]", indices[kind.plural])
            others += index.get(namespace, ())
        return [verdict.message for verdict in find_mistakes(observation, others)]


async def _log_in(**arguments: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - as kopf has it
    in_cluster = kopf.login_with_service_account(**arguments)
    return in_cluster or kopf.login_with_kubeconfig(**arguments)


async def _keep(body: kopf.Body, **_: object) -> Mapping[str, Observation]:
    """Return what the index of a kind has of an object, by namespace."""
    observation = _observe(body)
    return {observation.reference.key.namespace: observation}


def _observe(body: kopf.Body) -> Observation:
    kinds: Mapping[str, type[Resource]] = {kind.kind: kind for kind in SYSTEM_RESOURCES}
    return observe(kinds[body["kind"]], dict(body))
