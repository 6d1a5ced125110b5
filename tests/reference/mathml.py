"""A hook of MkDocs: blocks of LaTeX become MathML, which browsers set without a script."""

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig

FENCE = "math"
"""The word after the three backquotes, as on GitHub."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the extension for fenced blocks what sets mathematics."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": FENCE, "class": FENCE, "format": block}]
    return config


def block(source: str, *_: object, **__: object) -> str:
    """Set a formula; what else superfences gives to a formatter has no effect."""
    return f'<div class="math" tabindex="0">{convert(source.strip(), display="block")}</div>'
