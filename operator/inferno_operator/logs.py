"""Log lines, as text for people or as JSON for programs."""

import json
import logging
import sys
from datetime import UTC, datetime

from inferno_operator.resources.objects import Key, Reference

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def configure(*, as_json: bool) -> None:
    """Write to stderr, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("httpx", "kopf"):  # they tell of every request, and of every event
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # That it is not in the main thread, and does not end with the process: as it is to be.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the object that it is about.

    That is the first Key or Reference among the arguments of the message.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _about(record: logging.LogRecord) -> dict[str, str]:
    """Kind (where it is known), namespace and name of the object of a line."""
    for argument in record.args if isinstance(record.args, tuple) else ():
        if isinstance(argument, Reference):
            kind, key = {"kind": argument.resource.kind}, argument.key
            return {**kind, "namespace": key.namespace, "name": key.name}
        if isinstance(argument, Key):
            return {"namespace": argument.namespace, "name": argument.name}
    return {}
