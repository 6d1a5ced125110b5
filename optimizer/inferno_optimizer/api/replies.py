"""Answers as the original sends them."""

from http import HTTPStatus

from starlette.responses import Response

from inferno_optimizer.api.text import write_json

JSON = "application/json; charset=utf-8"


def json_reply(document: object, status: int = HTTPStatus.OK) -> Response:
    """Answer with a document."""
    return encoded_reply(write_json(document), status)


def encoded_reply(text: bytes, status: int = HTTPStatus.OK) -> Response:
    """Answer with JSON that is written already."""
    return Response(text, status, media_type=JSON)


def message_reply(status: int, message: str) -> Response:
    """Answer with a message for a person."""
    return json_reply({"message": message}, status)
