"""``isrwatch sandbox``: a real Kafka cluster for people. Works from any terminal through the cluster's folder."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import formatted, plan_cluster, read_plan
from streaming.errors import ConfigurationError
from streaming.runtime.jars import JMX_AGENT, SANDBOX, jar_paths

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Start a real Kafka cluster on this machine, and break it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console()

Root = Annotated[Path, typer.Option("--root", help="The cluster's folder: data, logs, state.")]
NodeId = Annotated[int, typer.Argument(help="A broker (1, 2, ...) or a controller (101, 102, ...).")]
DEFAULT_ROOT = Path(".isrwatch/sandbox")


@app.command()
def up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers; their ids are 1, 2, ...")] = 3,
    controllers: Annotated[int, typer.Option(min=1, max=5, help="Controllers: 101, 102, ...")] = 1,
    root: Root = DEFAULT_ROOT,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A property of all nodes; repeatable.")
    ] = None,
    jmx_config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Run the JMX agent in each broker with this file.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready; end it with: down.")] = False,
) -> None:
    """Start a cluster, or take up the one that is in the folder. Ctrl-C ends it and keeps its data."""
    if formatted(root):
        plan = read_plan(root)
        if (brokers, controllers) != (len(plan.brokers), len(plan.controllers)):
            raise ConfigurationError(
                f"{root} holds a sandbox of {len(plan.brokers)} brokers and {len(plan.controllers)} controllers: start "
                "it with these numbers, or remove it first: isrwatch sandbox down"
            )
    else:
        plan = plan_cluster(
            brokers=brokers, controllers=controllers, properties=_pairs(settings or []), jmx_config=jmx_config
        )
    _fetch(with_agent=plan.jmx_config is not None)
    sandbox = Sandbox(plan, root)
    if detach:
        with console.status("starting Kafka"):
            sandbox.up()
        _greet(sandbox)
        return
    with console.status("starting Kafka"):
        sandbox.__enter__()
    _stay(sandbox)


@app.command()
def status(root: Root = DEFAULT_ROOT) -> None:
    """Show the nodes and where clients begin."""
    sandbox = _opened(root)
    table = Table("node", "role", "address", "process")
    for node, ports in sandbox.plan.ports().items():
        role = "broker" if node in sandbox.broker_ids else "controller"
        table.add_row(str(node), role, f"127.0.0.1:{ports.client}", sandbox.state(node))
    console.print(table)
    console.print(f"Bootstrap servers: {sandbox.bootstrap_servers}", soft_wrap=True)
    if sandbox.plan.jmx_config:
        for broker in sandbox.broker_ids:
            console.print(f"Metrics of broker {broker}: {sandbox.metrics_url(broker)}", soft_wrap=True)
    console.print(f"Logs: {sandbox.root}/node-*/server.log", soft_wrap=True)


@app.command()
def kill(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """End a node at once (SIGKILL): fenced when its session ends."""
    _opened(root).kill(node)
    console.print(f"node {node} is dead; bring it back: isrwatch sandbox start {node}")


@app.command()
def stop(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Shut a node down in order (SIGTERM): it hands its leaders over first."""
    with console.status("controlled shutdown"):
        _opened(root).stop(node)
    console.print(f"node {node} has stopped; bring it back: isrwatch sandbox start {node}")


@app.command()
def pause(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Freeze a node (SIGSTOP): it hangs, its connections stay."""
    _opened(root).pause(node)
    console.print(f"node {node} is frozen; thaw it: isrwatch sandbox resume {node}")


@app.command()
def resume(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Thaw a frozen node (SIGCONT)."""
    _opened(root).resume(node)
    console.print(f"node {node} goes on")


@app.command()
def start(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Start a node that was killed or stopped."""
    with console.status("starting"):
        _opened(root).start(node)
    console.print(f"node {node} is ready")


@app.command()
def down(
    root: Root = DEFAULT_ROOT,
    keep: Annotated[bool, typer.Option("--keep", help="Keep data and logs for the next up.")] = False,
) -> None:
    """End all nodes and remove the cluster's folder."""
    sandbox = _opened(root)
    sandbox.down()
    if not keep:
        shutil.rmtree(sandbox.root)
    console.print("the sandbox is down" + (f"; its data stays in {root}" if keep else " and gone"))


def _stay(sandbox: Sandbox) -> None:
    """Keep the cluster until Ctrl-C."""
    try:
        _greet(sandbox)
        console.print("Ctrl-C ends it.")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        with console.status("ending"):
            sandbox.__exit__(None, None, None)


def _greet(sandbox: Sandbox) -> None:
    console.print(f"Kafka is ready: {sandbox.bootstrap_servers}", soft_wrap=True)
    console.print(f"Cluster id {sandbox.cluster_id}, data and logs in {sandbox.root}", soft_wrap=True)
    place = "" if sandbox.root == DEFAULT_ROOT.absolute() else f" --root {sandbox.root}"
    console.print(f"Now break something: isrwatch sandbox kill {sandbox.broker_ids[-1]}{place}", soft_wrap=True)


def _opened(root: Path) -> Sandbox:
    return Sandbox(read_plan(root), root)


def _fetch(*, with_agent: bool) -> None:
    with console.status("fetching Kafka") as shown:
        groups = (SANDBOX, JMX_AGENT) if with_agent else (SANDBOX,)
        jar_paths(*groups, progress=lambda file: shown.update(f"fetching Kafka: {file}"))


def _pairs(settings: list[str]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for key, sign, _ in pairs:
        if not (key and sign):
            raise ConfigurationError(f"--set {key!r} is no KEY=VALUE, as in log.segment.bytes=1048576")
    return {key: value for key, _, value in pairs}
