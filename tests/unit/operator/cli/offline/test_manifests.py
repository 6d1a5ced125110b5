"""From paths to objects; kubectl's own kustomize is the oracle where it is installed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.cli.offline.documents import parse_documents
from inferno_operator.cli.offline.manifests import read_documents
from inferno_optimizer.errors import InputError
from tests.controlplane.binaries import Binaries

SAMPLES = Path(__file__).parents[5] / "samples"


def contents(*paths: Path) -> list[object]:
    """What is read from these paths."""
    return [document.content for document in read_documents(str(path) for path in paths)]


def names(*paths: Path) -> list[str]:
    """The metadata.name of what is read from these paths."""
    found = contents(*paths)
    assert all(isinstance(content, dict) for content in found)
    return [content["metadata"]["name"] for content in found if isinstance(content, dict)]


def kind_and_name(content: Any) -> tuple[str, str]:  # noqa: ANN401 - what YAML happened to hold
    return content["kind"], content["metadata"]["name"]


def manifest(name: str) -> str:
    return f"kind: Server\nmetadata:\n  name: {name}\n"


def refusal(*paths: Path | str) -> str:
    """The message for these paths, which is one line."""
    with pytest.raises(InputError) as raised:
        read_documents(str(path) for path in paths)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_a_file_may_hold_many_documents_and_each_knows_its_line(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("# first\nkind: A\n---\n---\nkind: B\n")

    documents = read_documents([str(file)])

    assert [document.content for document in documents] == [{"kind": "A"}, {"kind": "B"}]
    assert [document.origin for document in documents] == [f"{file}:2", f"{file}:5"]


def test_a_list_is_taken_apart(tmp_path: Path) -> None:
    items = [{"kind": "Server"}, {"kind": "Model"}]
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))

    assert contents(file) == items


def test_a_list_without_items_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text("kind: ServerList\nitems:\n")

    assert contents(file) == []


def test_a_folder_gives_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("c.yml", "a.yaml", "b.json"):
        (tmp_path / name).write_text(json.dumps({"metadata": {"name": name}}))
    (tmp_path / "notes.md").write_text("not read: {")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "d.yaml").write_text("not read: {")

    assert names(tmp_path) == ["a.yaml", "b.json", "c.yml"]


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    file = tmp_path / "mark.json"
    file.write_bytes(b'\xef\xbb\xbf{"kind": "A"}')

    assert contents(file) == [{"kind": "A"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("-2.5E-1", -0.25),
        ("1.5", 1.5),
        ("7", 7),
        ("2025-01-31", "2025-01-31"),
        ("19:00", "19:00"),
    ],
)
def test_yaml_scalars_are_read_as_kubectl_reads_them(text: str, value: object) -> None:
    (document,) = parse_documents(f"value: {text}".encode(), "x.yaml")

    assert document.content == {"value": value}


@pytest.mark.parametrize("text", ['{"kind": "A"}', "kind: A"])
def test_json_and_yaml_are_told_apart_where_no_name_tells(text: str) -> None:
    (document,) = parse_documents(text.encode(), "standard input")

    assert document.content == {"kind": "A"}


def be_kubectl(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a kubectl that is found before all others."""
    program = folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


class TestSampleData:
    """The layout of the published sample data: one file a section."""

    def test_its_sections_are_one_document(self, tmp_path: Path) -> None:
        (tmp_path / "server-data.json").write_text('{"servers": []}')
        (tmp_path / "capacity-data.json").write_text('{"count": []}')

        assert contents(tmp_path) == [
            {"capacityData": {"count": []}, "serverData": {"servers": []}}
        ]

    def test_the_whole_system_and_the_answer_beside_them_are_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "server-data.json").write_text('{"servers": []}')
        (tmp_path / "system-data.json").write_text("not read")
        (tmp_path / "solution-data.json").write_text("not read")

        assert contents(tmp_path) == [{"serverData": {"servers": []}}]

    def test_the_whole_system_is_read_where_there_are_no_sections(self, tmp_path: Path) -> None:
        (tmp_path / "system-data.json").write_text('{"system": {}}')
        (tmp_path / "solution-data.json").write_text("not read")

        assert contents(tmp_path) == [{"system": {}}]


class TestKustomization:
    def test_files_and_folders_are_read_recursively_in_order(self, tmp_path: Path) -> None:
        base = tmp_path / "base"
        base.mkdir()
        (base / "kustomization.yaml").write_text("resources: [b.yaml]\n")
        (base / "b.yaml").write_text(manifest("b"))
        (base / "unlisted.yaml").write_text(manifest("unlisted"))
        (tmp_path / "a.yaml").write_text(manifest("a"))
        (tmp_path / "kustomization.yaml").write_text("resources: [base, a.yaml]\n")

        assert names(tmp_path) == ["b", "a"]
        assert names(tmp_path / "kustomization.yaml") == ["b", "a"]

    def test_its_namespace_is_that_of_its_objects(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text(manifest("a"))
        (tmp_path / "kustomization.yaml").write_text("namespace: llm\nresources: [a.yaml]\n")

        assert contents(tmp_path) == [
            {"kind": "Server", "metadata": {"name": "a", "namespace": "llm"}}
        ]

    def test_a_circle_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        (tmp_path / "kustomization.yaml").write_text("resources: [other]\n")
        (tmp_path / "other" / "kustomization.yaml").write_text("resources: [..]\n")

        assert "leads back to itself" in refusal(tmp_path)

    def test_what_only_kustomize_can_do_is_left_to_kubectl(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "kustomization.yaml").write_text("namePrefix: x-\nresources: []\n")
        be_kubectl(tmp_path, '[ "$1" = kustomize ] && echo "kind: \'$2\'"', monkeypatch)

        assert contents(tmp_path) == [{"kind": str(tmp_path)}]

    def test_what_kubectl_says_when_it_fails_is_passed_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "kustomization.yaml").write_text("namePrefix: x-\n")
        be_kubectl(tmp_path, "echo error: no resources >&2\nexit 1", monkeypatch)

        assert refusal(tmp_path).endswith("kubectl kustomize: error: no resources")

    @pytest.mark.parametrize("key", ["namePrefix: x-", "resources: ['https://example.com/a']"])
    def test_without_kubectl_the_message_says_what_to_do(
        self, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "kustomization.yaml").write_text(f"{key}\n")
        monkeypatch.setenv("PATH", str(tmp_path))

        assert f"kustomize build {tmp_path} | inferno plan -" in refusal(tmp_path)


@pytest.mark.cluster  # for its kubectl
@pytest.mark.parametrize("sample", ["fleet", "measured", "small", "three-models", "troubles"])
def test_a_sample_is_read_as_kubectl_builds_it(sample: str) -> None:
    kubectl = Binaries(os.environ).find("kubectl")
    built = subprocess.run(
        [kubectl, "kustomize", SAMPLES / sample], capture_output=True, check=True
    ).stdout

    ours, kubectls = contents(SAMPLES / sample), list(yaml.safe_load_all(built))

    assert sorted(ours, key=kind_and_name) == sorted(kubectls, key=kind_and_name)


class TestRefusals:
    """One line that names the file, and the line in it where that is known."""

    def test_a_name_that_is_too_long(self) -> None:
        assert refusal("x" * 5000).endswith("x: File name too long")

    def test_a_link_that_leads_to_itself(self, tmp_path: Path) -> None:
        link = tmp_path / "link.yaml"
        link.symlink_to(link)

        assert refusal(link) == f"{link}: Too many levels of symbolic links"

    @pytest.mark.parametrize(
        ("name", "data", "message"),
        [
            ("a.json", b" \n", ": is empty"),
            ("a.yaml", b"# nothing\n---\n", ": is empty"),
            ("a.json", b"null", ": is empty"),
            ("a.json", b'{\n "a": }', ":2:7: not valid JSON: Expecting value"),
            ("a.json", b"[" * 100_000, ": not valid JSON: maximum recursion depth exceeded"),
            ("a.json", b"1" * 5000, ": not valid JSON: Exceeds the limit (4300 digits)"),
            ("a.yaml", b"a: 1\nb: [\n", ":3:1: not valid YAML: did not find expected node"),
            ("a.yaml", b"a: b: c", ":1:5: not valid YAML: mapping values are not allowed"),
            ("a.yaml", b"[" * 100_000, ": nested more than 100 deep"),
            ("a.yaml", b"- " * 100_000, ": nested more than 100 deep"),
            ("a.yaml", b"a: \x07", ": not valid YAML: "),
            ("a.yaml", b"a: !unknown 1", ":1:4: not valid YAML: could not determine a constr"),
            ("a.yaml", b"a: 1\nb: \xff\xfe", ":2: not UTF-8 text (byte 9)"),
            ("a.yaml", b"kind: List\nitems: 5\n", ":1: items: expected a list"),
            ("kustomization.yaml", b"[]", ": expected an object"),
            ("kustomization.yaml", b"a: 1\n---\nb: 1\n", ":3: a second document, where one"),
        ],
    )
    def test_contents_that_cannot_be_read(
        self, name: str, data: bytes, message: str, tmp_path: Path
    ) -> None:
        file = tmp_path / name
        file.write_bytes(data)

        assert refusal(file).startswith(f"{file}{message}")
