"""Our definitions of Kthena's kinds take what the original ones of all releases take."""

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ORIGINALS = ROOT.parent / "shared" / "conformance" / "kthena" / "crds"

OPEN = "x-kubernetes-preserve-unknown-fields"
LOWER = ("minimum", "minItems", "minLength")
UPPER = ("maximum", "maxItems", "maxLength")

ON_PURPOSE = {
    "ModelBooster": {
        "spec.backends is at most 16 in maxItems",  # a ModelRoute takes no more
        "spec.backends[].loraAdapters is at most 10 in maxItems",  # the same
        # The rest bounds the cost of rules.
        "spec.backends[].loraAdapters[].name is at most 253 in maxLength",
        "spec.backends[].name is at most 253 in maxLength",
        "spec.backends[].scaleToZeroGracePeriod is at most 64 in maxLength",
        "spec.backend.name is at most 253 in maxLength",
    },
}
"""Where our definitions take less."""

WIDER = {
    "spec.rolloutStrategy.rollingUpdateConfiguration.partition has type None",  # v0.4: or a text
    "spec.schedulerName has default volcano",  # from v0.2 on; v0.1 requires one
}
"""Where releases differ, and our definitions are those of the later one."""

WIDER_PATTERNS = {
    "spec.backends[].modelURI",
    "spec.backends[].loraAdapters[].artifactURL",
}
"""Sources that later releases or the downloader know, besides those of the original."""

Schema = dict[str, Any]

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not ORIGINALS.is_dir(), reason="no recordings beside the project"),
]


def read(folder: Path) -> dict[str, Schema]:
    files = sorted(folder.glob("*.yaml"))
    read = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in files]
    return {crd["spec"]["names"]["kind"]: crd for crd in read}


@functools.cache
def originals() -> dict[str, Schema]:
    return read(ORIGINALS)


def root(crd: Schema) -> Schema:
    (version,) = crd["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def stricter(original: Schema, ours: Schema, path: str) -> Iterator[str]:
    """What our schema refuses or drops and the original does not."""
    yield from stricter_itself(original, ours, path)
    yield from (
        f"{path}.{name} is required"
        for name in set(ours.get("required", ())) - set(original.get("required", ()))
    )
    for name, field in original.get("properties", {}).items():
        where = f"{path}.{name}".removeprefix(".")
        if name in ours.get("properties", {}):
            yield from stricter(field, ours["properties"][name], where)
        elif not ours.get(OPEN):
            yield f"{where} is missing"
    for part, name in (("items", "[]"), ("additionalProperties", "{}")):
        if part in original and part in ours:
            yield from stricter(original[part], ours[part], path + name)
        elif part in original and not ours.get(OPEN):
            yield f"{path}{name} is missing"


def stricter_itself(original: Schema, ours: Schema, path: str) -> Iterator[str]:
    if ours.get("type") != original.get("type"):
        yield f"{path} has type {ours.get('type')}"
    yield from (
        f"{path} is at least {ours[limit]} in {limit}"
        for limit in LOWER
        if ours.get(limit, 0) > original.get(limit, 0)
    )
    yield from (
        f"{path} is at most {ours[limit]} in {limit}"
        for limit in UPPER
        if limit in ours and not original.get(limit, float("inf")) <= ours[limit]
    )
    if "enum" in ours and not set(of(original)) <= set(ours["enum"]):
        yield f"{path} lacks a word of {of(original)}"
    if "pattern" in ours and path not in WIDER_PATTERNS:
        yield from (f"{path} refuses {text}" for text in refused(original, ours))
    if ours.get("x-kubernetes-list-type") not in (None, original.get("x-kubernetes-list-type")):
        yield f"{path} is a map"
    if original.get("default") != ours.get("default"):
        yield f"{path} has default {ours.get('default')}"


def of(original: Schema) -> list[str]:
    """The words that the original takes."""
    words: list[str] = original.get("enum") or original["allOf"][0]["enum"]
    return words


@functools.cache
def texts() -> list[str]:
    """Every short text of the signs that quantities are made of."""
    lengths = range(6)
    return ["".join(word) for n in lengths for word in itertools.product("+1.eEKim", repeat=n)]


def refused(original: Schema, ours: Schema) -> list[str]:
    """What the original's pattern takes and ours does not."""
    if ours["pattern"] == original.get("pattern"):
        return []
    patterns = original.get("pattern", ""), ours["pattern"]
    theirs, own = (re.compile(pattern) for pattern in patterns)
    return [text for text in texts() if theirs.search(text) and not own.search(text)]


OURS = read(ROOT / "crds" / "kthena")


RELEASES = {"v0.1.0": "crds", "v0.4.0": "crds-v0.4.0", "v1.0.0": "crds-v1.0.0"}
"""The folders with the original definitions of releases, by the folders with their structure."""


@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("release", RELEASES)
def test_our_definitions_take_what_those_of_a_release_take(release: str, part: str) -> None:
    found: dict[str, set[str]] = {}
    for kind, original in read(ORIGINALS.parent / RELEASES[release]).items():
        theirs, ours = (root(crd)["properties"][part] for crd in (original, OURS[kind]))
        found[kind] = set(stricter(theirs, ours, part)) - ON_PURPOSE.get(kind, set()) - WIDER

    assert {kind: problems for kind, problems in found.items() if problems} in (
        {},
        {"ModelServing": {"status.conditions is a map"}},
    )


def test_what_our_definitions_refuse_on_purpose_is_told_exactly() -> None:
    spec = root(originals()["ModelBooster"])["properties"]["spec"]

    found = set(stricter(spec, root(OURS["ModelBooster"])["properties"]["spec"], "spec"))

    assert found == ON_PURPOSE["ModelBooster"] - {"spec.backend.name is at most 253 in maxLength"}


@pytest.mark.parametrize("kind", OURS)
def test_a_kind_has_the_names_of_the_original(kind: str) -> None:
    ours, original = OURS[kind], originals()[kind]

    assert ours["metadata"]["name"] == original["metadata"]["name"]
    assert ours["spec"]["names"] == original["spec"]["names"]
    assert ours["spec"]["versions"][0]["name"] == original["spec"]["versions"][0]["name"]


def test_all_kinds_are_compared() -> None:
    assert originals().keys() == OURS.keys()


OPEN_PODS = {
    f"spec.template.roles[].{template}.spec.containers is required"
    for template in ("entryTemplate", "workerTemplate")
}
"""Where the structures take more: in pods."""


@pytest.mark.parametrize("release", RELEASES)
def test_the_structure_of_a_release_is_that_of_its_definitions(release: str) -> None:
    """Tests on a control plane use the structures: both take and refuse the same."""
    original = read(ORIGINALS.parent / RELEASES[release])
    reduced = read(ROOT / "tests" / "data" / "kthena" / release)

    assert original.keys() == reduced.keys()
    for kind, definition in original.items():
        theirs, ours = root(definition), root(reduced[kind])
        scale = [
            each["spec"]["versions"][0]["subresources"] for each in (definition, reduced[kind])
        ]
        assert list(stricter(theirs, ours, "")) == []
        assert set(stricter(ours, theirs, "")) <= OPEN_PODS
        assert scale[0] == scale[1]
