"""The connector that moves KV caches from prefill to decode; pure."""

import json
import logging
from collections.abc import Mapping

logger = logging.getLogger(__name__)

TRANSFER = "kv-transfer-config"
"""The flag of an engine with the configuration of the transfer."""


def connector_name(transfer: object) -> str:
    """Return the connector in a transfer configuration, which is an object or JSON text."""
    try:
        value = json.loads(transfer) if isinstance(transfer, str) else transfer
    except ValueError:
        logger.info("%s is not valid JSON: %r", TRANSFER, transfer)
        return ""
    return str(value.get("kv_connector")) if isinstance(value, Mapping) else ""
