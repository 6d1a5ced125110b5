"""The environment: what it means, and what is said about what makes no sense."""

from pathlib import Path

import pytest

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.settings import VARIABLES, Settings, Variable, unknown_variables
from inferno_optimizer.errors import InfernoError, InputError
from tests.conftest import StartInVain


def read(**environment: str) -> Settings:
    return Settings.from_environment(environment)


def test_nothing_needs_to_be_set() -> None:
    assert read() == Settings(namespaces=(), time_limit=30.0)


def test_variables_of_others_do_not_matter() -> None:
    assert read(PATH="/bin", KUBECONFIG="x", inferno_namespace="x") == Settings()


@pytest.mark.parametrize(
    "yes", ["true", "1", "yes", "on", "TRUE", "True", "Yes", "ON", " true ", "t", "T"]
)
def test_stateless_is_what_runs_by_default(yes: str) -> None:
    assert read(INFERNO_STATELESS=yes) == Settings()
    assert Settings().stateless


@pytest.mark.parametrize("no", ["false", "0", "no", "off", "False", "NO", "f", "F"])
def test_stateful_is_asked_for_by_saying_no(no: str) -> None:
    assert read(INFERNO_STATELESS=no) == Settings(stateless=False)


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize("name", [variable.name for variable in VARIABLES])
def test_a_variable_without_a_value_is_as_if_it_were_absent(name: str, value: str) -> None:
    assert read(**{name: value}) == Settings()

    remote = {"INFERNO_HOST": "inferno", "INFERNO_PORT": "80"}
    remote.pop(name, None)
    assert read(**remote, **{name: value}) == read(**remote)


@pytest.mark.parametrize(
    ("environment", "summary"),
    [
        (
            {},
            (
                "optimizer: local, in this process (INFERNO_HOST names a remote one);"
                " operator: stateless, reads objects for each request"
            ),
        ),
        (
            {"INFERNO_HOST": "inferno", "INFERNO_PORT": "80", "INFERNO_STATELESS": "F"},
            "optimizer: remote, http://inferno:80; operator: stateful, watches and mirrors objects",
        ),
    ],
)
def test_the_start_says_which_optimizer_and_which_mode(
    environment: dict[str, str], summary: str
) -> None:
    assert read(**environment).summary == summary


def test_the_embedded_optimizer_is_what_runs() -> None:
    assert read(INFERNO_OPTIMIZER="local") == Settings()


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"INFERNO_OPTIMIZER": "remote"}, "http://localhost:8080"),
        ({"INFERNO_OPTIMIZER": "remote", "INFERNO_HOST": "inferno"}, "http://inferno:8080"),
        ({"INFERNO_HOST": "inferno.llm.svc"}, "http://inferno.llm.svc:8080"),
        ({"INFERNO_HOST": "10.0.0.1", "INFERNO_PORT": "80"}, "http://10.0.0.1:80"),
        ({"INFERNO_HOST": "fd00::1", "INFERNO_PORT": " 3302 "}, "http://[fd00::1]:3302"),
        ({"INFERNO_HOST": "inferno", "INFERNO_TLS_CA": "/ca.pem"}, "https://inferno:8080"),
    ],
)
def test_a_remote_optimizer_is_where_the_environment_says(
    environment: dict[str, str], url: str
) -> None:
    remote = read(**environment).remote

    assert remote is not None
    assert remote.url == url


def test_files_of_a_remote_optimizer_are_named() -> None:
    names = ("TLS_CERT", "TLS_KEY", "TLS_CA", "TOKEN_FILE")
    files = {f"INFERNO_{name}": f"/{name}" for name in names}

    remote = read(INFERNO_OPTIMIZER="remote", **files).remote

    assert remote == Endpoint(
        certificate=Path("/TLS_CERT"),
        key=Path("/TLS_KEY"),
        authority=Path("/TLS_CA"),
        token=Path("/TOKEN_FILE"),
    )


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(InputError, match="INFERNO_TLS_KEY"):
        read(INFERNO_OPTIMIZER="remote", INFERNO_TLS_KEY="/key")


def test_a_port_that_kubernetes_injects_is_explained() -> None:
    with pytest.raises(InputError, match="enableServiceLinks: false") as raised:
        read(INFERNO_HOST="inferno", INFERNO_PORT="tcp://10.0.0.1:8080")

    assert str(raised.value).startswith("INFERNO_PORT: ")


def test_a_port_is_not_looked_at_when_the_optimizer_is_local() -> None:
    assert read(INFERNO_PORT="tcp://10.0.0.1:8080") == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("INFERNO_PORT", value) for value in ("http", "0", "65536", "-1", "8080.0", "+80")),
        *(("INFERNO_HOST", value) for value in ("http://inferno", "inferno:80", "a b", "a/b")),
    ],
)
def test_an_address_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: ") as raised:
        read(**{"INFERNO_OPTIMIZER": "remote", name: value})

    assert repr(value) in str(raised.value)


def test_a_host_is_not_asked_when_the_optimizer_is_local() -> None:
    assert read(INFERNO_OPTIMIZER="local", INFERNO_HOST="inferno") == Settings()


PROMETHEUS = {"INFERNO_PROMETHEUS_URL": "https://mimir.example:9090/prometheus"}


def test_without_a_url_nothing_is_measured() -> None:
    settings = read(INFERNO_PROMETHEUS_URL="", INFERNO_PROMETHEUS_USER="inferno")

    assert settings == Settings(prometheus=None, measure_interval=30.0)


@pytest.mark.parametrize(
    "url",
    ["http://prometheus:9090", "https://mimir/prometheus/", "http://[fd00::1]:9090", " http://x "],
)
def test_a_url_of_prometheus_is_enough_to_measure(url: str) -> None:
    assert read(INFERNO_PROMETHEUS_URL=url).prometheus == PrometheusEndpoint(
        url.strip(), timeout=10.0
    )


def test_all_of_prometheus_can_be_set() -> None:
    names = ("CA", "CERT", "KEY", "PASSWORD_FILE", "HEADERS_FILE")
    files = {f"INFERNO_PROMETHEUS_{name}": f"/{name}" for name in names}

    settings = read(
        **PROMETHEUS,
        **files,
        INFERNO_PROMETHEUS_USER="inferno",
        INFERNO_PROMETHEUS_PARAMS="namespace=prod%20%26%20test&dedup=",
        INFERNO_PROMETHEUS_TIMEOUT="2.5",
        INFERNO_MEASURE_INTERVAL="15",
        INFERNO_MEASURE_SOURCES="/sources.yaml",
    )

    assert settings.measure_interval == 15
    assert settings.measure_sources == Path("/sources.yaml")
    assert settings.prometheus == PrometheusEndpoint(
        "https://mimir.example:9090/prometheus",
        authority=Path("/CA"),
        certificate=Path("/CERT"),
        key=Path("/KEY"),
        user="inferno",
        password=Path("/PASSWORD_FILE"),
        headers=Path("/HEADERS_FILE"),
        params=(("namespace", "prod & test"), ("dedup", "")),
        timeout=2.5,
    )


@pytest.mark.parametrize(
    "url",
    [
        "prometheus:9090",
        "prometheus",
        "//prometheus",
        "ftp://prometheus",
        "https://",
        "https:///prometheus",
        "http://prometheus:port",
        "http://[fd00::1",
        "http://a b",
        "http://prometheus/ä",
        "http://prometheus?namespace=prod",
        "http://prometheus#graph",
    ],
)
def test_a_url_of_prometheus_that_makes_no_sense_is_named(url: str) -> None:
    with pytest.raises(InputError, match=r"^INFERNO_PROMETHEUS_URL: ") as raised:
        read(INFERNO_PROMETHEUS_URL=url)

    assert repr(url) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://inferno:hunter2@prometheus", "ftp://hunter2@prometheus"])
def test_credentials_in_a_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InputError, match="INFERNO_PROMETHEUS_PASSWORD_FILE") as raised:
        read(INFERNO_PROMETHEUS_URL=url)

    assert str(raised.value).startswith("INFERNO_PROMETHEUS_URL: ")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("named", "environment", "told"),
    [
        ("USER", {"USER": "inferno"}, "without INFERNO_PROMETHEUS_PASSWORD_FILE"),
        ("PASSWORD_FILE", {"PASSWORD_FILE": "/p"}, "without INFERNO_PROMETHEUS_USER"),
        ("KEY", {"KEY": "/key"}, "without INFERNO_PROMETHEUS_CERT"),
        (
            "TOKEN_FILE",
            {"TOKEN_FILE": "/token", "USER": "inferno", "PASSWORD_FILE": "/p"},
            "together with INFERNO_PROMETHEUS_USER",
        ),
        ("USER", {"USER": "in:ferno", "PASSWORD_FILE": "/p"}, "'in:ferno' has a colon"),
        ("CA", {"URL": "http://prometheus", "CA": "/ca"}, "starts with https://"),
        ("CERT", {"URL": "http://prometheus", "CERT": "/cert"}, "starts with https://"),
        ("PARAMS", {"PARAMS": "namespace"}, "'namespace' is not of the form name=value"),
        ("PARAMS", {"PARAMS": "a=b&&c=d"}, "'a=b&&c=d' is not of the form name=value"),
        ("PARAMS", {"PARAMS": "=prod"}, "'=prod' has a value without a name"),
        ("TIMEOUT", {"TIMEOUT": "10s"}, "'10s' is not a number of seconds"),
        ("TIMEOUT", {"TIMEOUT": "0"}, "'0' is not a positive number of seconds"),
    ],
)  # fmt: skip
def test_a_setting_of_prometheus_that_makes_no_sense_is_named(
    named: str, environment: dict[str, str], told: str
) -> None:
    given = {f"INFERNO_PROMETHEUS_{name}": value for name, value in environment.items()}

    with pytest.raises(InputError) as raised:
        read(**{**PROMETHEUS, **given})

    assert str(raised.value).startswith(f"INFERNO_PROMETHEUS_{named}: ")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "namespaces"),
    [
        ("", ()),
        ("llm", ("llm",)),
        ("b,a", ("a", "b")),
        (" a , b ", ("a", "b")),
        ("a,,b,", ("a", "b")),
        ("a,a", ("a",)),
        ("team-1", ("team-1",)),
    ],
)
def test_namespaces_are_separated_by_commas(value: str, namespaces: tuple[str, ...]) -> None:
    assert read(INFERNO_NAMESPACE=value).namespaces == namespaces


@pytest.mark.parametrize("value", ["30", "30.0", "0.5", " 5 ", "1e3"])
def test_a_time_limit_is_a_number_of_seconds(value: str) -> None:
    assert read(INFERNO_SOLVER_TIME_LIMIT=value).time_limit == float(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("INFERNO_STATELESS", value) for value in ("ture", "2", "tr", "enabled", "none")),
        *(("INFERNO_OPTIMIZER", value) for value in ("Remote ", "localhost", "http://x")),
        *(("INFERNO_SOLVER_TIME_LIMIT", value) for value in ("30s", "0", "-1", "inf", "nan")),
        *(("INFERNO_NAMESPACE", value) for value in ("Team", "a b", "team_1", "*", "-a")),
        *(("INFERNO_MEASURE_INTERVAL", value) for value in ("30s", "0", "-1", "inf", "nan")),
    ],
)
def test_a_bad_value_stops_the_start_and_is_named(name: str, value: str) -> None:
    with pytest.raises(InputError) as raised:
        read(**{name: value})

    assert str(raised.value).startswith(f"{name}: ")
    assert repr(value) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_one_bad_value_is_enough() -> None:
    with pytest.raises(InfernoError, match=r"^INFERNO_SOLVER_TIME_LIMIT: "):
        read(INFERNO_NAMESPACE="llm", INFERNO_SOLVER_TIME_LIMIT="soon")


@pytest.mark.parametrize(
    ("unknown", "known"),
    [
        ("INFERNO_NAMESPACES", "INFERNO_NAMESPACE"),
        ("INFERNO_STATLESS", "INFERNO_STATELESS"),
        ("INFERNO_OPTIMISER", "INFERNO_OPTIMIZER"),
        ("INFERNO_TIME_LIMIT", "INFERNO_SOLVER_TIME_LIMIT"),
    ],
)
def test_an_unknown_variable_gets_the_nearest_known_one(unknown: str, known: str) -> None:
    (warning,) = unknown_variables({unknown: "x", known: "x", "PATH": "/bin"})

    assert unknown in warning
    assert f"did you mean {known}?" in warning


def test_unknown_variables_are_told_in_order() -> None:
    warnings = unknown_variables({"INFERNO_ZZZ": "", "INFERNO_AAA": ""})

    assert ["AAA" in warning for warning in warnings] == [True, False]


@pytest.mark.parametrize(
    "name",
    [
        "INFERNO_STATELESS",
        "INFERNO_OPTIMIZER",
        "INFERNO_NAMESPACE",
        "INFERNO_SOLVER_TIME_LIMIT",
        "PATH",
        "MY_INFERNO_X",
    ],
)
def test_known_variables_and_those_of_others_are_no_reason_to_warn(name: str) -> None:
    assert not unknown_variables({name: "x"})


@pytest.mark.parametrize("service", ["INFERNO", "INFERNO_OPTIMIZER", "INFERNO_STATELESS_2"])
@pytest.mark.parametrize(
    ("ending", "value"),
    [
        ("SERVICE_HOST", "10.0.0.1"),
        ("SERVICE_PORT", "8080"),
        ("SERVICE_PORT_HTTP", "8080"),
        ("PORT", "tcp://10.0.0.1:8080"),
        ("PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("PORT_8080_TCP_PROTO", "tcp"),
        ("PORT_8080_TCP_PORT", "8080"),
        ("PORT_8080_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_service_links_are_no_reason_to_warn(service: str, ending: str, value: str) -> None:
    assert not unknown_variables({f"{service}_{ending}": value})


@pytest.mark.parametrize(
    "text",
    [None, "apiVersion: v1\nkind: Config\n", "contexts: [unfinished", "no kubeconfig at all"],
    ids=["missing", "empty", "no YAML", "no object"],
)
def test_a_start_without_access_to_a_cluster_says_so(
    start_in_vain: StartInVain, text: str | None, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "config"
    if text is not None:
        kubeconfig.write_text(text)

    status, lines = start_in_vain(KUBECONFIG=str(kubeconfig))

    assert status != 0
    assert lines[-1].startswith("inferno: no access to a cluster: ")


def test_a_start_with_a_bad_value_ends_before_anything_is_asked_of_a_cluster(
    start_in_vain: StartInVain, tmp_path: Path
) -> None:
    status, lines = start_in_vain(
        KUBECONFIG=str(tmp_path / "config"), INFERNO_SOLVER_TIME_LIMIT="soon"
    )

    assert status == 2
    assert lines[-1].startswith("inferno: INFERNO_SOLVER_TIME_LIMIT: 'soon' ")


@pytest.mark.parametrize("variable", [v for v in VARIABLES if v.default], ids=lambda v: v.name)
def test_the_default_that_a_help_names_is_what_holds_without_the_variable(
    variable: Variable,
) -> None:
    place = "remote" if variable.name in ("INFERNO_HOST", "INFERNO_PORT") else "local"
    others = {"INFERNO_OPTIMIZER": place, "INFERNO_PROMETHEUS_URL": "http://prometheus:9090"}
    others.pop(variable.name, None)

    named = Settings.from_environment({**others, variable.name: variable.default})

    assert named == Settings.from_environment(others)
