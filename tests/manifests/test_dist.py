"""The files of a release: what they are, that they work, and that they are the same each time."""

import hashlib
import json
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from tests.conftest import ROOT
from tests.deployment.make import make_files
from tests.deployment.rendering import CHART, OVERLAYS, RELEASE
from tests.manifests.test_supply_chain import pinned

pytestmark = pytest.mark.extended

IMAGE = "registry.example.org/inferno:1.2.3"
URL = "https://example.org/v0.1.0"
DIST = "make dist RELEASE_URL=https://..."


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Path:
    folder = tmp_path_factory.mktemp("release")
    make_files(
        "dist",
        folder,
        f"KUBECTL={kubectl}",
        f"IMG={IMAGE}",
        f"RELEASE_URL={URL}",
        "CONTAINER_TOOL=none",
    )
    return folder


def test_it_is_the_same_each_time_and_says_what_it_could_not_make(
    release: Path, tmp_path: Path
) -> None:
    printed = make_files("dist", tmp_path, "KUBECTL=none", f"IMG={IMAGE}", "CONTAINER_TOOL=none")

    again = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert again.pop("SHA256SUMS") != (release / "SHA256SUMS").read_bytes()
    assert again == {name: (release / name).read_bytes() for name in again}
    assert len(again) == 4
    assert "sbom.json" in again
    assert [line for line in printed.splitlines() if line.startswith("not made")] == [
        "not made  the installers: none is not on PATH",
        f"not made  the krew manifest: name the address of the release: {DIST}",
        "not made  the image: none is not on PATH",
    ]


def test_the_checksums_are_those_of_all_files(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}

    files = {path.name: path for path in release.iterdir() if path.name != "SHA256SUMS"}
    assert sums == {n: hashlib.sha256(path.read_bytes()).hexdigest() for n, path in files.items()}


def test_the_bill_of_materials_lists_what_is_in_the_image(release: Path) -> None:
    bill = json.loads((release / "sbom.json").read_text())

    assert bill["bomFormat"] == "CycloneDX"
    listed = {canonicalize_name(c["name"]): c["version"] for c in bill["components"]}
    assert listed == pinned("requirements.txt")


def test_the_wheel_has_all_that_the_program_needs(release: Path, tmp_path: Path) -> None:
    (wheel,) = release.glob("*.whl")
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from inferno_operator.cli.inferno.main import main\n"
        "import inferno_operator, inferno_optimizer\n"
        "assert all('.whl' in m.__file__ for m in (inferno_operator, inferno_optimizer))\n"
        "main()"
    )

    for arguments in (["plan", ROOT / "samples/small"], ["catalogue", "list"]):
        ran = subprocess.run(
            [sys.executable, "-I", "-c", code, wheel, *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        assert len(ran.stdout.splitlines()) > 3


def test_the_wheel_is_installed_into_a_fresh_environment_and_optimizes_its_sample(
    release: Path, tmp_path: Path
) -> None:
    """Its dependencies are those of this environment: a registry may be out of reach."""
    (wheel,) = release.glob("*.whl")
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(fresh / "bin/python"), "install"]
    subprocess.run([*pip, "--quiet", "--no-index", "--no-deps", str(wheel)], check=True)
    purelib = sysconfig.get_path("purelib", vars={"base": str(fresh)})
    Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def inferno(*arguments: str, stdin: str = "") -> str:
        program = [str(fresh / "bin/inferno"), *arguments]
        return subprocess.run(
            program, cwd=tmp_path, input=stdin, check=True, capture_output=True, text=True
        ).stdout

    assert "Decide where LLM inference runs" in inferno("--help")
    assert "3 of 3 servers" in inferno("plan", "-", stdin=inferno("sample"))
    episode, load = ROOT / "samples/episode", ROOT / "samples/traces/slo-aware.csv"
    replay = ("replay", str(episode), "--trace", str(load), "--hours", "0.1")
    assert "keda-queue" in inferno(*replay, "--policy", "keda-queue")
    assert Path(purelib, "inferno_operator").is_dir()


def test_the_chart_renders_what_its_folder_renders(release: Path, helm: Path) -> None:
    (package,) = release.glob("inferno-*.tgz")

    rendered = [
        subprocess.run(
            [helm, "template", RELEASE, chart, "--kube-version", "1.34"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for chart in (CHART, package)
    ]

    assert rendered[0] == rendered[1] != ""


@pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))
def test_there_is_an_installer_for_each_overlay(overlay: str, release: Path) -> None:
    installer = (release / f"install-{overlay}.yaml").read_text()

    kinds = {manifest["kind"] for manifest in yaml.safe_load_all(installer)}
    assert {"CustomResourceDefinition", "Deployment", "ClusterRole"} & kinds
    assert f"image: {IMAGE}" in installer


def test_krew_installs_a_script_that_runs_this_version(release: Path) -> None:
    manifest = (release / "krew.yaml").read_text()
    plugin = yaml.safe_load(manifest)
    (platform,) = plugin["spec"]["platforms"]
    archive = release / platform["uri"].rpartition("/")[2]
    with tarfile.open(archive) as packed:
        (member,) = packed.getmembers()
        file = packed.extractfile(member)
        assert file is not None
        script = file.read().decode()

    assert "#" not in manifest.replace("sha256:", "")
    assert platform["uri"] == f"{URL}/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (member.name, member.mode) == (platform["bin"], 0o755)
    version = plugin["spec"]["version"].removeprefix("v")
    wheel = release / f"inferno_operator-{version}-py3-none-any.whl"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert f'pipx run --spec "{URL}/{wheel.name}#sha256={digest}" kubectl-inferno' in script
