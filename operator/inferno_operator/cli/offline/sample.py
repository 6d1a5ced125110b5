"""The sample that comes with the package; see `sample.yaml`."""

from importlib.resources import files


def sample_text() -> str:
    """Return custom resources as YAML."""
    return files(__package__).joinpath("sample.yaml").read_text(encoding="utf-8")
