"""Inference engines that tests measure: simulated replicas, and a real Prometheus.

Start servers and a Prometheus that scrapes them; the programs are found or built (see
`tests/controlplane/binaries.py`), tests take them from the fixtures `prometheus_program`,
`promtool` and `inference_sim`:

    settings = Settings(
        Engine(alpha=8.0, beta=0.1, gamma=20.0, delta=0.0008, max_batch_size=64),
        Workload(LogNormal(mean=512, variation=0.8), LogNormal(mean=200, variation=0.8)),
        model_name="granite-13b",
        dialect=VLLM,                       # or VLLM_OLD, SGLANG
        labels={"namespace": "prod"},       # of the target; `pod` is added
    )
    with Processes() as processes, Fleet(seed=1) as fleet:
        servers = {
            name: fleet.add(name, settings, replicas=3, rate=10.0)   # requests/s
            for name in ("chat", "code")
        }
        with Prometheus(processes, prometheus_program) as prometheus:
            prometheus.set_targets(fleet.targets())
            prometheus.wait_for_scrapes()

Pods are called `chat-0`, `chat-1`... A control plane has `Processes` of its own, in which
Prometheus can run as well. What was really sent and seen, on all replicas of a server:

    end = fleet.now                                  # seconds since the fleet began
    truth = servers["chat"].truth(end - 60.0, end)   # arrivals, arrival_rate, ttft_ms, itl_ms...

Changes and faults, from the moment of the call:

    servers["chat"].set_rate(40.0)                             # another load
    servers["chat"].set_engine(settings.engine.slowed(1.2))    # a slower release
    servers["chat"].start("chat-3")                            # one more replica
    servers["chat"].start("chat-4", other_engine)              # one on another accelerator
    servers["chat"].drain("chat-3")                            # it gets no more requests
    servers["chat"].kill("chat-0")                             # scrapes fail, requests are lost
    servers["chat"].restart("chat-1")                          # counters begin at 0
    servers["chat"].remove("chat-2")                           # no target any more
    servers["chat"].set_scrapes(Scrapes.HANGING, "chat-1")     # or REFUSED, ANSWERED
    servers["chat"].pods["chat-1"].labels["namespace"] = "x"   # another label
    prometheus.set_targets(fleet.targets())                    # after a change of pods or labels
    prometheus.suspend(), .resume(), .stop(), .start()

`Prometheus.parse` and `Prometheus.selectors` read an expression with Prometheus' own parser,
`Promtool` checks rules and metrics. `InferenceSim` runs `llm-d-inference-sim`. A `StreamingEngine`
answers requests itself, in the time of its loop.

Modules: `workload` and `engine` are parameters, `replica` is the simulation of one replica,
`truth` what happened to it; `exposition`, `vllm` and `sglang` are its metrics, which `fleet` and
`scrape_server` serve; `prometheus`, `promtool` and `inference_sim` are around real
programs; `streaming` is an engine behind the API of OpenAI.
"""
