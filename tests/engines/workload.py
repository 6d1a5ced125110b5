"""What clients send to a simulated engine: how long prompts and answers are."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Lengths(Protocol):
    """A distribution of numbers of tokens, at least 1."""

    def draw(self, random: np.random.Generator) -> int:
        """Draw the length of one request [tokens]."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request has this length."""

    tokens: int

    def draw(self, _random: np.random.Generator) -> int:
        """Return the length [tokens]."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """All lengths from `low` to `high` are equally likely."""

    low: int
    high: int

    def draw(self, random: np.random.Generator) -> int:
        """Draw one length [tokens]."""
        return int(random.integers(self.low, self.high + 1))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Many short requests and a few long ones.

    Attributes
    ----------
    mean
        Mean length [tokens].
    variation
        Coefficient of variation: the standard deviation divided by the mean.
    """

    mean: float
    variation: float

    def draw(self, random: np.random.Generator) -> int:
        """Draw one length [tokens]."""
        variance = math.log1p(self.variation**2)
        location = math.log(self.mean) - variance / 2
        return max(1, round(random.lognormal(location, math.sqrt(variance))))


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths of prompts and of answers; the two are independent."""

    input_tokens: Lengths
    output_tokens: Lengths
