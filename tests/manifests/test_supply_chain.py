"""What is in the image is known by its hash, and nothing says from where it is to be fetched."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

IMAGE = ROOT / "manifests" / "image"
PINNED = re.compile(
    r"^([A-Za-z0-9._-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
)
DIGEST = f"python:3.12-slim-bookworm@sha256:{'0' * 64}"


def pinned(name: str) -> dict[str, str]:
    """Versions by package; every line of the file is one of a package with its hashes."""
    text, found = (IMAGE / name).read_text(), dict[str, str]()
    while text:
        match = PINNED.match(text)
        assert match, text[:200]
        found[canonicalize_name(match[1])] = match[2]
        text = text[match.end() :]
    return found


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def needed(package: str, extras: Sequence[str] = ()) -> Iterator[str]:
    """The packages that a package needs here, and those that they need."""
    for text in requires(package) or ():
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in extras or ("",)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, wanted)):
            yield canonicalize_name(requirement.name)
            yield from needed(requirement.name, sorted(requirement.extras))


def test_all_that_the_operator_needs_is_pinned_by_hash_at_the_version_that_is_tested() -> None:
    versions = pinned("requirements.txt")

    assert versions.keys() == {*needed("inferno-operator", ["admission"])}
    assert versions.items() <= constraints().items()


def test_what_builds_the_wheel_is_pinned_by_hash() -> None:
    assert "hatchling" in pinned("build-requirements.txt")


def test_nothing_is_installed_without_a_hash_but_the_wheel_that_was_built() -> None:
    script = (IMAGE / "install.sh").read_text().replace("\\\n", "")
    installs = [line for line in script.splitlines() if " install " in line]

    assert len(installs) == 3
    assert [line for line in installs if "--require-hashes" not in line] == [
        line for line in installs if "--no-index --no-deps" in line
    ]


@pytest.mark.parametrize("name", ["constraints.txt", "Dockerfile", "manifests/image/install.sh"])
def test_no_file_names_an_index(name: str) -> None:
    assert not re.search("://|index-url|find-links", (ROOT / name).read_text())


def test_every_stage_of_the_image_begins_with_the_base_that_is_given() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()

    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${BASE}"] * 2
    assert {line for line in lines if line.startswith("ARG ")} == {"ARG BASE"}


def build(base: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "docker-build", f"BASE={base}", "CONTAINER_TOOL=echo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("base", ["", "python:3.12-slim-bookworm"])
def test_an_image_is_not_built_from_a_tag_alone(base: str) -> None:
    built = build(base)

    assert built.returncode != 0
    assert "name the base image by digest" in built.stderr


def test_an_image_is_built_from_a_digest() -> None:
    built = build(DIGEST)

    assert f"--build-arg BASE={DIGEST}" in built.stdout
