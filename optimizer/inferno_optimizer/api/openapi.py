"""The description of the API, made of the same tables that read and answer requests."""

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from inferno_optimizer.api.messages import JSON
from inferno_optimizer.api.state import EDITS, LOOKS, Edit, Look
from inferno_optimizer.solution import Reason, SolverStatus
from inferno_optimizer.wire.fields import Object, Schema, nullable
from inferno_optimizer.wire.tables import BODY, OPTIONS

JsonObject = dict[str, Any]

PARAMETER = re.compile(r"\{(\w+)\}")

MESSAGE: Schema = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
SOLUTION: Schema = {
    "type": "object",
    "properties": {
        "allocations": {"type": "object", "additionalProperties": {"type": "object"}},
        "unserved": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "reason": {"enum": [str(reason) for reason in Reason]},
                    "message": {"type": "string"},
                },
                "required": ["reason", "message"],
            },
        },
        "certificate": {
            "type": "object",
            "properties": {
                "solver": {"type": "string"},
                "status": {"enum": [str(status) for status in SolverStatus]},
                "objective": {"type": "number"},
                "bound": NUMBER_OR_NULL,
                "gap": NUMBER_OR_NULL,
                "seconds": {"type": "number"},
                "ignored": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["solver", "status", "objective", "bound", "gap", "seconds"],
        },
    },
    "required": ["allocations", "unserved", "certificate"],
}
TEXT_PAGE = {"text/plain": {"schema": {"type": "string"}}}

OF_BODIES = {
    HTTPStatus.BAD_REQUEST: "The body cannot be read.",
    HTTPStatus.REQUEST_TIMEOUT: "The body took too long.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is compressed.",
}
OF_SOLVES = {
    HTTPStatus.NOT_FOUND: "The optimization failed.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The optimization broke off.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Busy, or stopping.",
    HTTPStatus.GATEWAY_TIMEOUT: "The optimization took too long.",
}
NOT_FOUND = {HTTPStatus.NOT_FOUND: "A name is not known."}
BAD_PRIORITY = {HTTPStatus.BAD_REQUEST: "The priority is not an integer."}


def describe(*, stateful: bool, guarded: bool) -> JsonObject:
    """Describe the API of a server.

    Parameters
    ----------
    stateful
        Whether it has the calls that change what it keeps.
    guarded
        Whether it asks for a token.
    """
    document: JsonObject = {
        "openapi": "3.1.0",
        "info": {
            "title": "Inferno optimizer",
            "version": version("inferno-operator"),
            "description": "Decides which accelerator, how many replicas and which batch size.",
        },
        "paths": dict(_describe_paths(stateful=stateful)),
        "components": {"schemas": {"Message": MESSAGE, "Solution": SOLUTION}},
    }
    if guarded:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _require_token(path, operation)
    return document


def _require_token(path: str, operation: JsonObject) -> None:
    if path in ("/healthz", "/readyz"):
        operation["security"] = []
    else:
        unknown = _describe_response(
            "The token is missing or wrong.", _wrap_json(_refer_to("Message"))
        )
        operation["responses"]["401"] = unknown


def _describe_paths(*, stateful: bool) -> Iterator[tuple[str, JsonObject]]:
    yield "/optimizeOne", {"post": _describe_solve("Optimize the system in the body.", BODY)}
    for look in LOOKS:
        yield look.path, {"get": _describe_look(look)}
    if stateful:
        yield "/optimize", {"post": _describe_solve("Optimize the system that is kept.", OPTIONS)}
        for edit in EDITS:
            yield edit.path, {edit.method.lower(): _describe_edit(edit)}
    for path, summary, content in (
        ("/healthz", "Whether the process works.", TEXT_PAGE),
        ("/readyz", "Whether it can optimize.", TEXT_PAGE),
        ("/metrics", "Counts for Prometheus.", TEXT_PAGE),
        ("/openapi.json", "This description.", _wrap_json({"type": "object"})),
    ):
        yield path, {"get": _describe_operation(summary, content)}


def _describe_solve(summary: str, body: Object[Any]) -> JsonObject:
    return _describe_operation(
        summary, _wrap_json(_refer_to("Solution")), {**OF_BODIES, **OF_SOLVES}, body=body
    )


def _describe_look(look: Look) -> JsonObject:
    refused = NOT_FOUND if "{" in look.path else {}
    return _describe_operation(_read_summary(look.show), _wrap_json(look.reply), refused, look.path)


def _describe_edit(edit: Edit) -> JsonObject:
    refused = {**(OF_BODIES if edit.body else {}), **NOT_FOUND}
    if "{priority}" in edit.path:
        refused |= BAD_PRIORITY
    return _describe_operation(
        _read_summary(edit.change), _wrap_json(edit.reply), refused, edit.path, body=edit.body
    )


def _read_summary(function: object) -> str:
    return (function.__doc__ or "").partition("\n")[0]


def _describe_operation(
    summary: str,
    content: JsonObject,
    refused: Mapping[HTTPStatus, str] | None = None,
    path: str = "",
    body: Object[Any] | None = None,
) -> JsonObject:
    messages = _wrap_json({"anyOf": [_refer_to("Message"), {"type": "string"}]})
    operation: JsonObject = {
        "summary": summary,
        "responses": {
            "200": _describe_response("Done.", content),
            **{
                str(int(status)): _describe_response(why, messages)
                for status, why in (refused or {}).items()
            },
        },
    }
    if path:
        operation["parameters"] = [_describe_parameter(name) for name in PARAMETER.findall(path)]
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _wrap_json(nullable(body.schema))}
    return operation


def _describe_parameter(name: str) -> JsonObject:
    schema = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _describe_response(description: str, content: JsonObject) -> JsonObject:
    return {"description": description, "content": content}


def _wrap_json(schema: Schema) -> JsonObject:
    return {JSON.partition(";")[0]: {"schema": schema}}


def _refer_to(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
