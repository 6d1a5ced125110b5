"""Recorded conversations: sent again, and what differs from the recorded answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

JsonObject = dict[str, Any]

ADDED = {"certificate", "unserved", "percentiles", "reason", "message", "mix", "warnings"}
"""Keys that our answers to optimize have besides."""


def read_conversation(path: Path) -> tuple[JsonObject, list[JsonObject]]:
    head, *steps = [json.loads(line) for line in path.read_text().splitlines()]
    return head, steps


def replayed(client: httpx.Client, steps: list[JsonObject]) -> Iterator[tuple[int, str]]:
    """Send the steps; for each one its number and what differs, empty if nothing does."""
    for step in steps:
        yield step["step"], difference(step, send(client, step))


def send(client: httpx.Client, step: JsonObject) -> httpx.Response:
    body = json.dumps(step["body"]) if "body" in step else step.get("rawBody")
    url = httpx.URL(str(client.base_url).rstrip("/") + step["path"])
    return client.request(step["method"], url, content=body)


def difference(step: JsonObject, reply: httpx.Response) -> str:
    """What is not as it was recorded; empty when everything is."""
    for what, recorded, ours in (
        ("status", step["status"], reply.status_code),
        ("content type", step["contentType"], reply.headers.get("content-type")),
        ("location", step.get("location"), reply.headers.get("location")),
    ):
        if recorded != ours:
            return f"{what} {recorded} -> {ours} {reply.text[:200]}"
    if "rawResponse" in step:
        return "" if reply.text == step["rawResponse"] else f"body {reply.text!r}"
    if "alternatives" in step:
        return _among(step["alternatives"], reply.json()["allocations"])
    recorded, ours = step["response"], reply.json()
    for pointer in step.get("unordered", ()):
        _sort(recorded, pointer)
        _sort(ours, pointer)
    return unlike(recorded, ours, ADDED if step["path"].startswith("/optimize") else set())


def _among(alternatives: JsonObject, ours: JsonObject) -> str:
    if alternatives.keys() != ours.keys():
        return f"servers {sorted(alternatives)} -> {sorted(ours)}"
    for server, choices in alternatives.items():
        if all(unlike(choice, ours[server], ADDED) for choice in choices):
            return f"{server}: {ours[server]} is none of the recorded ones"
    return ""


def _sort(document: object, pointer: str) -> None:
    """Bring the lists that a pointer names into an order."""
    found = [document]
    for key in pointer.split("/")[1:]:
        found = [child for part in found for child in _children(part, key)]
    for part in found:
        if isinstance(part, list):
            part.sort(key=_identity)


def _children(part: object, key: str) -> list[object]:
    if isinstance(part, list):
        return part
    return [part[key]] if isinstance(part, dict) and key in part else []


def _identity(item: object) -> str:
    """Numbers are rounded differently, names are not."""
    if isinstance(item, dict):
        return "/".join(str(item.get(key)) for key in ("name", "acc", "model", "type"))
    return str(item)


def unlike(recorded: object, ours: object, added: set[str], place: str = "") -> str:
    """The first place where values differ by more than rounding; empty when there is none.

    Ours may have the `added` keys besides.
    """
    if isinstance(recorded, dict) and isinstance(ours, dict):
        if recorded.keys() - ours.keys() or ours.keys() - recorded.keys() - added:
            return f"{place}: keys {sorted(recorded)} -> {sorted(ours)}"
        pairs = [(key, value, ours[key]) for key, value in recorded.items()]
        if "waitAverage" in recorded and _wait_is_near(recorded, ours):
            pairs = [pair for pair in pairs if pair[0] != "waitAverage"]
    elif isinstance(recorded, list) and isinstance(ours, list):
        if len(recorded) != len(ours):
            return f"{place}: {recorded} -> {ours}"
        pairs = [(i, one, other) for i, (one, other) in enumerate(zip(recorded, ours, strict=True))]
    else:
        return "" if _is_near(recorded, ours) else f"{place}: {recorded} -> {ours}"
    found = (unlike(one, other, added, f"{place}/{key}") for key, one, other in pairs)
    return next(filter(None, found), "")


def _is_near(recorded: object, ours: object) -> bool:
    """Equal but for the rounding of numbers to 32 bits."""
    if isinstance(recorded, float) and isinstance(ours, int | float):
        return abs(recorded - ours) <= 1e-5 * abs(recorded)
    return recorded == ours or (
        isinstance(recorded, int)
        and isinstance(ours, float)
        and abs(recorded - ours) <= 1e-5 * abs(recorded)
    )


def _wait_is_near(recorded: JsonObject, ours: JsonObject) -> bool:
    """The recorded wait is the difference of two numbers of 32 bits: small ones are noise."""
    wait, whole = recorded["waitAverage"], recorded["load"]["avgLength"] * recorded["itlAverage"]
    return bool(abs(ours["waitAverage"] - wait) <= max(0.01, 1e-4 * wait, 1e-4 * whole))
