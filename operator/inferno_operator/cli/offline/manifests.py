"""Files, folders, kustomizations and standard input -> their objects."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from inferno_operator.cli.offline.documents import Document, parse_documents
from inferno_operator.runtime.files import find_sample
from inferno_optimizer.errors import InputError

SUFFIXES = (".json", ".yaml", ".yml")  # files of a folder that are read

# The layout of the published sample data: one file for each section of SystemData.
SECTION_FILES = {
    "accelerator-data.json": "acceleratorData",
    "capacity-data.json": "capacityData",
    "model-data.json": "modelData",
    "optimizer-data.json": "optimizerData",
    "server-data.json": "serverData",
    "serviceclass-data.json": "serviceClassData",
}

WHOLE_SYSTEM = "system-data.json"
# What may lie beside them: the same in one file, and an answer that is no input.
ANSWER = "solution-data.json"

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")

# Keys of a kustomization that cannot change what an object asks for.
PLAIN_KEYS = frozenset(
    {"apiVersion", "kind", "metadata", "namespace", "resources"}
    | {"labels", "commonLabels", "commonAnnotations"}
)


UNNAMED = "unnamed"


def object_name(name: str) -> str:
    """A name that Kubernetes takes: lower case letters, digits and hyphens of a name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-") or UNNAMED


def read_sample(name: str) -> str:
    """Return the files of a folder of samples as one, in their order."""
    folder = find_sample(name)
    files = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))["resources"]
    return "---\n".join((folder / file).read_text("utf-8") for file in files)


def read_documents(paths: Iterable[str], namespace: str = "") -> list[Document]:
    """Read all objects at the paths; a list gives its items.

    `paths`: Files, folders, kustomizations, or `-` for standard input. A folder in the layout
    of the published sample data is one document of SystemData; `namespace`: leave out the
    objects of other namespaces, and put there those that name none; "" takes all as they are.
    Raises InputError if a path does not exist, has no objects, or is not JSON or YAML.
    """
    documents = [document for path in paths for document in _read(path)]
    items = [item for document in documents for item in _list_items(document)]
    if not namespace:
        return items
    chosen = [
        _select_namespace(i, namespace) for i in items if _read_namespace(i) in ("", namespace)
    ]
    named = {_read_namespace(item) for item in items if not chosen or _is_ours(item)} - {""}
    if named and namespace not in named:
        others = ", ".join(sorted(named))
        raise InputError(f"no object is in namespace {namespace!r}; given are: {others}")
    return chosen


def _is_ours(document: Document) -> bool:
    from inferno_operator.resources.base import GROUP  # noqa: PLC0415 - SystemData needs no models

    content = document.content
    version = content.get("apiVersion") if isinstance(content, Mapping) else None
    return isinstance(version, str) and version.startswith(f"{GROUP}/")


def _read_namespace(document: Document) -> str:
    content = document.content
    metadata = content.get("metadata") if isinstance(content, Mapping) else None
    return str(metadata.get("namespace") or "") if isinstance(metadata, Mapping) else ""


def count_others(documents: Iterable[Document]) -> str:
    """Return how many objects there are that a command does not read, and of which kinds."""
    kinds = [str(d.content.get("kind")) for d in documents if isinstance(d.content, Mapping)]
    if not kinds:
        return "no object"
    several = "s" * (len(kinds) > 1)
    return f"{len(kinds)} object{several} of other kinds ({', '.join(sorted({*kinds}))})"


def _read(path: str) -> tuple[Document, ...]:
    if not path:
        raise InputError("a path is empty; the current folder is .")
    if "://" in path:
        raise InputError(f"{path}: is no file; download it first: curl -L {path} | inferno plan -")
    try:
        if path == "-":
            with open(0, "rb", closefd=False) as stdin:
                return parse_documents(stdin.read(), "standard input")
        return _read_path(Path(path))
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from error


def _read_path(path: Path, parents: tuple[Path, ...] = ()) -> tuple[Document, ...]:
    if path.is_dir():
        return _read_folder(path, parents)
    if path.name in KUSTOMIZATIONS:
        return _read_kustomization(path, parents)
    return parse_documents(path.read_bytes(), str(path))


def _read_folder(folder: Path, parents: tuple[Path, ...]) -> tuple[Document, ...]:
    for name in KUSTOMIZATIONS:
        if (folder / name).is_file():
            return _read_kustomization(folder / name, parents)
    files = {path.name: path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}
    files.pop(ANSWER, None)
    sections = {key: files.pop(name) for name, key in SECTION_FILES.items() if name in files}
    if sections:
        files.pop(WHOLE_SYSTEM, None)
    elif not files:
        raise InputError(f"{folder}: no {', '.join(SUFFIXES)} file in this folder")
    documents = [document for path in files.values() for document in _read_path(path)]
    return (*_join_documents(sections, folder), *documents)


def _join_documents(sections: Mapping[str, Path], folder: Path) -> Iterator[Document]:
    if sections:
        content = {key: _read_single(path).content for key, path in sections.items()}
        yield Document(content, str(folder))


def _read_single(path: Path) -> Document:
    first, *more = parse_documents(path.read_bytes(), str(path))
    if more:
        raise InputError(f"{more[0].origin}: a second document, where one is expected")
    return first


def _read_kustomization(file: Path, parents: tuple[Path, ...]) -> tuple[Document, ...]:
    folder = file.parent.resolve()
    if folder in parents:
        raise InputError(f"{file}: this kustomization leads back to itself")
    content = _read_single(file).content
    if not isinstance(content, Mapping):
        raise InputError(f"{file}: expected an object")
    resources = content.get("resources") or []
    if not _is_plain(content, resources):
        return _build_by_kubectl(file)
    namespace = content.get("namespace")
    return tuple(
        _select_namespace(document, namespace)
        for entry in resources
        for document in _read_resource(file, entry, (*parents, folder))
    )


def _read_resource(file: Path, entry: str, parents: tuple[Path, ...]) -> tuple[Document, ...]:
    """Read what a kustomization names, which a missing file is told with."""
    try:
        return _read_path(file.parent / entry, parents)
    except FileNotFoundError as error:
        raise InputError(f"{file}: resources: {entry}: {error.strerror}") from error


def _is_plain(content: Mapping[str, object], resources: object) -> bool:
    """Return whether the resources give the same plan without kustomize as with it."""
    return (
        content.keys() <= PLAIN_KEYS
        and isinstance(resources, list)
        and all(isinstance(entry, str) and "://" not in entry for entry in resources)
    )


def _build_by_kubectl(file: Path) -> tuple[Document, ...]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise InputError(
            f"{file}: needs kustomize, and kubectl is not on PATH; "
            f"try: kustomize build {file.parent} | inferno plan -"
        )
    built = subprocess.run(  # noqa: S603 - the user's own kubectl, no shell
        [kubectl, "kustomize", str(file.parent)], capture_output=True, check=False
    )
    if built.returncode != 0:
        problem = built.stderr.decode(errors="replace").strip() or f"exit {built.returncode}"
        raise InputError(f"{file}: kubectl kustomize: {problem}")
    return parse_documents(built.stdout, f"{file} (built)")


def _select_namespace(document: Document, namespace: object) -> Document:
    content = document.content
    if not namespace or not isinstance(content, Mapping):
        return document
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping):
        return document
    moved = {**content, "metadata": {**metadata, "namespace": namespace}}
    return replace(document, content=moved)


def _list_items(document: Document) -> Iterator[Document]:
    content = document.content
    if not isinstance(content, Mapping) or not str(content.get("kind")).endswith("List"):
        yield document
        return
    items = content.get("items") or []
    if not isinstance(items, list):
        raise InputError(f"{document.origin}: items: expected a list")
    for place, item in enumerate(items):
        yield replace(document, content=item, steps=("items", place))
