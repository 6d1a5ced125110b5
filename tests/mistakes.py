"""Forty typical mistakes in a fleet of one's own, and what `inferno plan` says of each.

`python -m tests.mistakes` prints them as a table.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferno_operator.cli.inferno.main import main as inferno
from tests.controlplane.processes import ROOT
from tests.in_process import called

SAMPLE = ROOT / "samples" / "fleet"


@dataclass(frozen=True)
class Mistake:
    """A change of a file of the sample, and words of the message about it.

    `before` is replaced by `after` once; without `before`, `after` is added at the end.
    """

    what: str
    file: str
    before: str
    after: str
    told: Sequence[str]

    def make(self, folder: Path) -> None:
        """Make the mistake in a copy of the sample."""
        file = folder / self.file
        text = file.read_text() if file.exists() else ""
        if self.before and self.before not in text:
            raise ValueError(f"{self.what}: {self.file} has no {self.before!r}")
        changed = text.replace(self.before, self.after, 1) if self.before else text + self.after
        file.write_text(changed)


PROGRESS = "optimizing "
"""What a command says that works."""

SERVERS, MODELS, CLASSES = "servers.yaml", "models.yaml", "serviceclasses.yaml"
CARDS, CAPACITY, OPTIMIZER = "accelerators.yaml", "capacity.yaml", "optimizer.yaml"
L4 = "- {acc: L4, accCount: 1, alpha: 82.13, beta: 2.73, maxBatchSize: 19, atTokens: 512}"
LOAD = "load: {arrivalRate: 900, avgLength: 256, arrivalCOV: 1.0, serviceCOV: 1.0}"

MISTAKES = (
    Mistake(
        "class with a typing error",
        SERVERS,
        "class: Premium",
        "class: Premum",
        ("servers.yaml:11: server 'Premium-mistral_7b': class: ", "did you mean Premium?"),
    ),
    Mistake(
        "class in other case",
        SERVERS,
        "class: Premium",
        "class: premium",
        ("servers.yaml:11: server 'Premium-mistral_7b': class: ", "did you mean Premium?"),
    ),
    Mistake(
        "model with a dash",
        SERVERS,
        "model: mistral_7b",
        "model: mistral-7b",
        ("servers.yaml:12: server 'Premium-mistral_7b': model: ", "did you mean mistral_7b"),
    ),
    Mistake(
        "accelerator in other case",
        SERVERS,
        "accelerator: A100",
        "accelerator: a100",
        (
            "servers.yaml:14: server 'Premium-mistral_7b': currentAlloc.accelerator: ",
            "did you mean A100?",
        ),
    ),
    Mistake(
        "accelerator of performance data unknown",
        MODELS,
        "acc: L4,",
        "acc: L4S,",
        ("models.yaml:12: model 'mistral_7b' (L4S): acc: ", "did you mean L40S or L4?"),
    ),
    Mistake(
        "model of a target unknown",
        CLASSES,
        "{model: mistral_7b,",
        "{model: mistral7b,",
        ("serviceclasses.yaml:10: service class 'Premium': data: ", "did you mean mistral7b?"),
    ),
    Mistake(
        "type of a card unknown",
        CAPACITY,
        "{type: H100,",
        "{type: H1OO,",
        ("capacity.yaml:12: capacity 'H1OO': type: ", "did you mean H100?"),
    ),
    Mistake(
        "kind with a typing error",
        CARDS,
        "kind: Accelerator",
        "kind: Acelerator",
        ("accelerators.yaml:4: no kind is named 'Acelerator'", "did you mean Accelerator?"),
    ),
    Mistake(
        "kind in the plural",
        SERVERS,
        "kind: Server\n",
        "kind: Servers\n",
        ("servers.yaml:6: no kind is named 'Servers'", "did you mean Server"),
    ),
    Mistake(
        "another version of the API",
        SERVERS,
        "/v1alpha1",
        "/v1",
        ("servers.yaml:5: Server premium-mistral-7b: apiVersion must be ",),
    ),
    Mistake(
        "group with a typing error",
        SERVERS,
        "inferno.platform.ai/",
        "inferno.platfrom.ai/",
        ("servers.yaml:5: Server premium-mistral-7b: apiVersion must be ",),
    ),
    Mistake(
        "field with a typing error",
        SERVERS,
        "numReplicas: 3",
        "numReplica: 3",
        (
            "servers.yaml:15: Server premium-mistral-7b: spec.currentAlloc.numReplica ",
            "did you mean numReplicas",
        ),
    ),
    Mistake(
        "field a level too high",
        SERVERS,
        f"    {LOAD}",
        f"  {LOAD}",
        (
            "servers.yaml:20: Server premium-mistral-7b: spec.load ",
            "did you mean currentAlloc.load?",
        ),
    ),
    Mistake(
        "option of the optimizer a level too high",
        OPTIMIZER,
        "  optimize: false",
        "  milpSolver: true",
        ("spec.milpSolver is unknown; did you mean data.optimizer.milpSolver?",),
    ),
    Mistake(
        "performance data of an accelerator twice",
        MODELS,
        "acc: L40S,",
        "acc: L4,",
        ("models.yaml:12: model 'mistral_7b' (L4): acc: 'L4' is named 2 times",),
    ),
    Mistake(
        "target of a model twice",
        CLASSES,
        "  - {model: llama3_8b,",
        "  - {model: mistral_7b, slo-itl: 20}\n  - {model: llama3_8b,",
        ("serviceclasses.yaml:11: service class 'Premium' (mistral_7b): model: ",),
    ),
    Mistake(
        "kind of a workload in lower case",
        SERVERS,
        "  currentAlloc:",
        "  workloads: [{accelerator: A100, name: mistral, kind: deployment}]\n  currentAlloc:",
        ("servers.yaml:13: server 'Premium-mistral_7b': workloads: ", "did you mean Deployment?"),
    ),
    Mistake(
        "field in snake case",
        SERVERS,
        "maxBatch: 128",
        "max_batch: 128",
        (
            "servers.yaml:16: Server premium-mistral-7b: spec.currentAlloc.max_batch ",
            "did you mean maxBatch?",
        ),
    ),
    Mistake(
        "field in lower case",
        MODELS,
        "maxBatchSize: 19",
        "maxbatchsize: 19",
        (
            "models.yaml:12: Model mistral-7b: spec.data[0].maxbatchsize ",
            "did you mean maxBatchSize?",
        ),
    ),
    Mistake(
        "name of a target with a typing error",
        CLASSES,
        "slo-itl: 40",
        "slo-ilt: 40",
        (
            "serviceclasses.yaml:11: ServiceClass premium: spec.data[0].slo-ilt ",
            "did you mean slo-itl",
        ),
    ),
    Mistake(
        "name of a target with an underscore",
        CLASSES,
        "slo-itl: 40",
        "slo_itl: 40",
        (
            "serviceclasses.yaml:11: ServiceClass premium: spec.data[0].slo_itl ",
            "did you mean slo-itl",
        ),
    ),
    Mistake(
        "a number as text",
        CARDS,
        "cost: 6\n",
        'cost: "6"\n',
        (
            "accelerators.yaml:14: Accelerator l4: spec.cost must be a valid number, not '6'",
            "; write it without quotes",
        ),
    ),
    Mistake(
        "a number with a unit",
        CARDS,
        "memSize: 24",
        "memSize: 24GB",
        ("accelerators.yaml:11: Accelerator l4: spec.memSize must be a valid integer, not '24GB'",),
    ),
    Mistake(
        "a latency with a unit",
        CLASSES,
        "slo-itl: 40",
        "slo-itl: 40ms",
        ("serviceclasses.yaml:11: ServiceClass premium: spec.data[0].slo-itl must be a ",),
    ),
    Mistake(
        "a price with a currency",
        CARDS,
        "cost: 6\n",
        "cost: $6\n",
        ("accelerators.yaml:14: Accelerator l4: spec.cost must be a valid number, not '$6'",),
    ),
    Mistake(
        "a comma in a number",
        CARDS,
        "cost: 3.75",
        "cost: 3,75",
        ("accelerators.yaml:66: Accelerator aiu2: spec.cost must be a valid number, not '3,75'",),
    ),
    Mistake(
        "a number with a separator",
        SERVERS,
        "arrivalRate: 900",
        "arrivalRate: 1.000.000",
        ("servers.yaml:20: Server premium-mistral-7b: spec.currentAlloc.load.arrivalRate must be",),
    ),
    Mistake(
        "a fraction of a replica",
        SERVERS,
        "numReplicas: 3",
        "numReplicas: 2.5",
        ("servers.yaml:15: Server premium-mistral-7b: spec.currentAlloc.numReplicas must be",),
    ),
    Mistake(
        "negative replicas",
        SERVERS,
        "numReplicas: 3",
        "numReplicas: -3",
        ("servers.yaml:15: server 'Premium-mistral_7b': currentAlloc.numReplicas: -3 is negative",),
    ),
    Mistake(
        "a negative price",
        CARDS,
        "cost: 6\n",
        "cost: -6\n",
        ("accelerators.yaml:14: accelerator 'L4': cost: -6 is negative",),
    ),
    Mistake(
        "a negative load",
        SERVERS,
        "arrivalRate: 900",
        "arrivalRate: -900",
        ("servers.yaml:20: server 'Premium-mistral_7b': currentAlloc.load.arrivalRate: -900",),
    ),
    Mistake(
        "a negative time",
        MODELS,
        "alpha: 82.13",
        "alpha: -82.13",
        ("models.yaml:12: model 'mistral_7b' (L4): alpha: -82.13 is negative",),
    ),
    Mistake(
        "a negative number of cards",
        CAPACITY,
        "count: 32",
        "count: -32",
        ("capacity.yaml:9: Capacity fleet: spec.count[0].count must be greater",),
    ),
    Mistake(
        "a priority of 0",
        CLASSES,
        "priority: 1",
        "priority: 0",
        ("serviceclasses.yaml:9: service class 'Premium': priority: 0 counts as 100",),
    ),
    Mistake(
        "a Boolean as text",
        OPTIMIZER,
        "milpSolver: true",
        'milpSolver: "true"',
        (
            "optimizer.yaml:15: Optimizer fleet: spec.data.optimizer.milpSolver must be ",
            "; write it without quotes",
        ),
    ),
    Mistake(
        "an unknown policy",
        OPTIMIZER,
        "PriorityExhaustive",
        "PriorityExhausting",
        (
            "optimizer.yaml:17: Optimizer fleet: spec.data.optimizer.saturationPolicy ",
            "did you mean PriorityExhaustive",
        ),
    ),
    Mistake(
        "the name left out",
        SERVERS,
        "  name: Premium-mistral_7b\n",
        "",
        ("servers.yaml:9: Server premium-mistral-7b: spec.name is missing",),
    ),
    Mistake(
        "the class left out",
        SERVERS,
        "  class: Premium\n",
        "",
        ("servers.yaml:9: Server premium-mistral-7b: spec.class is missing",),
    ),
    Mistake(
        "only half of the parameters",
        MODELS,
        "beta: 2.73, ",
        "",
        ("models.yaml:12: Model mistral-7b: spec.data[0] is inconsistent: alpha",),
    ),
    Mistake(
        "a field given twice",
        SERVERS,
        "maxBatch: 128",
        "maxBatch: 128\n    maxBatch: 64",
        ("servers.yaml:17:5: ", "key 'maxBatch' occurs twice"),
    ),
    Mistake(
        "a copied Server whose name was not changed",
        SERVERS,
        "name: Premium-mistral_7b-long",
        "name: Premium-mistral_7b",
        (
            "servers.yaml:27: server 'Premium-mistral_7b': name: ",
            "the older Server 'premium-mistral-7b'",
        ),
    ),
    Mistake(
        "an object twice",
        CAPACITY,
        "",
        "---\n" + (SAMPLE / CAPACITY).read_text(),
        ("capacity.yaml:21: Capacity fleet is given twice: it is at capacity.yaml:3, too",),
    ),
    Mistake(
        "a template of Helm left in",
        CARDS,
        "cost: 6\n",
        "cost: {{ .Values.l4.cost }}\n",
        ("accelerators.yaml:14:9: ", "it is a template of Helm; render it first"),
    ),
    Mistake(
        "a tab",
        SERVERS,
        "  class: Premium",
        "\tclass: Premium",
        ("servers.yaml:11:1: ", "indented by a tab"),
    ),
    Mistake(
        "a colon without a space",
        SERVERS,
        "class: Premium",
        "class:Premium",
        ("servers.yaml:12:3: ", "could not find expected ':'"),
    ),
    Mistake(
        "indented too little",
        SERVERS,
        "    numReplicas: 3",
        "  numReplicas: 3",
        ("servers.yaml:16:13: ", "mapping values are not allowed"),
    ),
    Mistake(
        "a bracket left open",
        MODELS,
        L4,
        L4.rstrip("}"),
        ("models.yaml:13:5: ", "did not find expected ',' or '}'"),
    ),
    Mistake(
        "a list where an object belongs",
        SERVERS,
        LOAD,
        "load: [900, 256]",
        ("servers.yaml:20: Server premium-mistral-7b: spec.currentAlloc.load must be an object",),
    ),
    Mistake(
        "--- left out between two objects",
        SERVERS,
        "---\n",
        "",
        (
            "servers.yaml:21:1: ",
            "key 'apiVersion' occurs twice in an object; write --- between two objects",
        ),
    ),
    Mistake(
        "a field of the object with a typing error",
        OPTIMIZER,
        "spec:\n",
        "spec: {}\nsepc:\n",
        ("optimizer.yaml:10: Optimizer fleet: sepc is unknown", "did you mean spec?"),
    ),
    Mistake(
        "a template of Helm in quotes",
        SERVERS,
        LOAD,
        'load: {arrivalRate: "{{ .Values.rate }}", avgLength: 256}',
        ("servers.yaml:20: Server premium-mistral-7b: ", "it is a template of Helm; render it"),
    ),
    Mistake(
        "a variable of a shell",
        SERVERS,
        LOAD,
        "load: {arrivalRate: ${RATE}, avgLength: 256}",
        ("servers.yaml:20:", "it has variables of a shell; fill them in first: envsubst"),
    ),
    Mistake(
        "the marks of a merge conflict",
        CAPACITY,
        "spec:\n",
        "<<<<<<< HEAD\nspec:\n=======\nspec:\n>>>>>>> mine\n",
        ("capacity.yaml:", "it has the marks of a merge conflict"),
    ),
    Mistake(
        "the version left out",
        CAPACITY,
        "apiVersion: inferno.platform.ai/v1alpha1\n",
        "",
        ("Capacity fleet: apiVersion is missing: write inferno.platform.ai/v1alpha1",),
    ),
    Mistake(
        "a no-break space, from a web page",
        CARDS,
        "  cost:",
        "\N{NO-BREAK SPACE} cost:",
        ("Accelerator l4: '\\xa0 cost' is unknown",),
    ),
)


def messages(mistake: Mistake, folder: Path) -> list[str]:
    """What is said of a mistake on standard error."""
    shutil.copytree(SAMPLE, folder)
    mistake.make(folder)
    done = called(inferno, ["plan", ".", "--time-limit", "2"], folder=folder)
    errors = done.stderr.decode().splitlines()
    return [line for line in errors if not line.startswith(PROGRESS)]


def told() -> Iterator[tuple[Mistake, list[str]]]:
    with tempfile.TemporaryDirectory() as place:
        for number, mistake in enumerate(MISTAKES):
            yield mistake, messages(mistake, Path(place) / str(number))


def main() -> int:
    """Print the table; the exit status."""
    print("| # | mistake | message |\n|---|---|---|")
    for number, (mistake, lines) in enumerate(told(), start=1):
        shown = "<br>".join(line.replace("|", "\\|") for line in lines) or "(nothing)"
        print(f"| {number} | {mistake.what} | {shown} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
