"""Log lines, as text or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime

from inferno_operator.resources.objects import Key, Reference

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def configure(*, as_json: bool) -> None:
    """Log to stderr, from level INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    # It warns of a file that is missing, of which the error says the same.
    logging.getLogger("kubernetes.aio.config.kube_config").setLevel(logging.ERROR)


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the Kubernetes object that the line is about.

    This object is the first Key or Reference among the arguments of the message.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
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
    """Return kind (if known), namespace and name of the object that a record is about."""
    for argument in record.args if isinstance(record.args, tuple) else ():
        if isinstance(argument, Reference):
            kind, key = {"kind": argument.kind.kind}, argument.key
            return {**kind, "namespace": key.namespace, "name": key.name}
        if isinstance(argument, Key):
            return {"namespace": argument.namespace, "name": argument.name}
    return {}
