"""`inferno study`: many replays of policies, loads, fleets and settings."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import (
    Format,
    Lenient,
    Output,
    examples,
    interruptible,
    show,
    warn,
    working,
)
from inferno_operator.cli.options.currency import IN_CENTS, Currency, money_of
from inferno_operator.cli.options.replay import Jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inferno_operator.cli.study import Result, StudyRun

app = typer.Typer()


@app.command(
    epilog=examples(
        "inferno study samples/studies/slower.yaml --jobs 2",
        "inferno study samples/studies/eighteen.yaml --scheduler tcp://scheduler:8786 -o csv",
    )
)
def study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study, YAML or JSON.")],
    output: Output = Format.TABLE,
    *,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keeps the results, which are not computed again: one JSON line for each replay. "
            "By default a file of the current folder with the name of the study, and .jsonl.",
            show_default=False,
        ),
    ] = None,
    jobs: Jobs = 1,
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Replay on a Dask cluster, by the address of its scheduler; it needs the extra "
            "study.",
        ),
    ] = "",
    currency: Currency = IN_CENTS,
    lenient: Lenient = False,
) -> None:
    """Replay policies with several fleets, loads and settings.

    The study names all of them. Each replay is one row. What was
    computed once is kept, so that an interrupted study goes on where it was.
    """
    from inferno_operator.cli.offline.system import refuse_unknown
    from inferno_operator.cli.study import (
        compare_with_bounds,
        list_runs,
        read_results,
        read_study,
    )
    from inferno_operator.cli.tables.study import study_parts

    money = money_of(currency)
    wanted, kept = read_study(file), results or Path(f"{file.stem}.jsonl")
    printed = set[str]()

    def warn_once(warnings: "Iterable[str]") -> None:
        new = [warning for warning in dict.fromkeys(warnings) if warning not in printed]
        printed.update(new)
        warn(new)

    runs = list(list_runs(wanted, file.parent, warn if lenient else refuse_unknown, warn_once))
    kept_results = read_results(kept)
    missing = [each for each in runs if each.key not in kept_results]
    rows = compare_with_bounds(
        wanted, runs, kept_results | _compute(missing, kept, jobs, scheduler)
    )
    show(output, lambda: [one.document() for one in rows], lambda: study_parts(rows, money))


def _compute(
    missing: "Sequence[StudyRun]", kept: Path, jobs: int, scheduler: str
) -> "dict[str, Result]":
    """Compute results and keep them by their keys; Ctrl-C ends the command."""
    from inferno_operator.cli.executors import dask_cluster, processes, yield_completed
    from inferno_operator.cli.study import compute_result, open_results

    results: dict[str, Result] = {}
    if not missing:
        return results

    def say() -> None:
        done = f"{len(results)} of {len(missing)} replays are done and kept in {kept}"
        warn([f"interrupted: {done}; the same command goes on"])

    add = open_results(kept)
    with (
        interruptible(say),
        working("replaying") as tell,
        dask_cluster(scheduler) if scheduler else processes(jobs) as executor,
    ):
        runs = {each.key: each for each in missing}
        calls = {key: (each.scenario, each.policy) for key, each in runs.items()}
        for key, result in yield_completed(executor, compute_result, calls):
            run = runs[key]
            add(run, result)
            results[key] = result
            tell(f"replayed {run} ({len(results)} of {len(missing)})")
    return results
