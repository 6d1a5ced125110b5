"""Every variable that a program of ours reads."""

from collections.abc import Iterator

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.prometheus.endpoint import DEFAULT_TIMEOUT
from inferno_operator.settings import OFF, VARIABLES, Settings
from tests.reference.commands import contexts
from tests.reference.markdown import code, table

OPERATOR = "inferno operator"


def environment() -> str:
    """One table for the operator, one for the other programs."""
    return "\n\n".join(
        [
            "## Of the operator",
            table(
                ("variable", "option", "default", "meaning"),
                [
                    (code(v.name), _option(v.option, switch=v.switch), _default(v.name), v.help)
                    for v in VARIABLES
                ],
            ),
            "## Of the other programs",
            table(("variable", "programs", "option", "default", "meaning"), sorted(_others())),
        ]
    )


def names() -> set[str]:
    """Every variable."""
    return {v.name for v in VARIABLES} | {line[0].strip("`") for line in _others()}


def _option(name: str, *, switch: bool) -> str:
    return code(f"--{name}") + (f", {code(f'--no-{name}')}" if switch else "")


def _default(variable: str) -> str:
    """What holds where a variable is not set; a new variable has to be added here."""
    settings, remote = Settings.from_environment({}), Endpoint()
    values: dict[str, object] = {
        "INFERNO_HOST": remote.host,
        "INFERNO_LEADER_ELECTION": settings.leader_election,
        "INFERNO_MEASURE_INTERVAL": settings.measure_interval,
        "INFERNO_MEASURE_SOURCES": "",
        "INFERNO_MODEL_BOOSTER": settings.model_booster or OFF,
        "INFERNO_MODEL_BOOSTER_RELEASE": "",
        "INFERNO_METRICS_TOKEN_FILE": "",
        "INFERNO_NAMESPACE": "",
        "INFERNO_OPTIMIZER": "local",
        "INFERNO_PLAN_KEY_FILE": "",
        "INFERNO_PORT": remote.port,
        "INFERNO_PROMETHEUS_CA": "",
        "INFERNO_PROMETHEUS_CERT": "",
        "INFERNO_PROMETHEUS_HEADERS_FILE": "",
        "INFERNO_PROMETHEUS_KEY": "",
        "INFERNO_PROMETHEUS_PARAMS": "",
        "INFERNO_PROMETHEUS_PASSWORD_FILE": "",
        "INFERNO_PROMETHEUS_TIMEOUT": DEFAULT_TIMEOUT,
        "INFERNO_PROMETHEUS_TOKEN_FILE": "",
        "INFERNO_PROMETHEUS_URL": "",
        "INFERNO_PROMETHEUS_USER": "",
        "INFERNO_PUBLISH_TOKEN_FILE": "",
        "INFERNO_SOLVER_TIME_LIMIT": settings.time_limit,
        "INFERNO_STATELESS": settings.stateless,
        "INFERNO_TLS_CA": "",
        "INFERNO_TLS_CERT": "",
        "INFERNO_TLS_KEY": "",
        "INFERNO_TOKEN_FILE": "",
        "INFERNO_WVA_METRICS": settings.wva_metrics,
    }
    value = values[variable]
    return code(f"{value:g}" if isinstance(value, float) else _text(value))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _others() -> Iterator[tuple[str, str, str, str, str]]:
    """Variables that stand for options of other commands, with all commands that read them."""
    programs: dict[tuple[str, str, str, str], list[str]] = {}
    for context in contexts():
        for parameter in context.command.params:
            variable = getattr(parameter, "envvar", None)
            if variable is None or context.command_path == OPERATOR:
                continue
            help_text = str(getattr(parameter, "help", ""))
            default = "" if parameter.default is None else parameter.default
            shown = code(f"{default:g}" if isinstance(default, float) else default)
            key = (code(variable), ", ".join(map(code, parameter.opts)), shown, help_text)
            programs.setdefault(key, []).append(code(context.command_path))
    for (variable, option, default, help_text), readers in programs.items():
        yield variable, ", ".join(readers), option, default, help_text
