"""``isrwatch sandbox``: a real Kafka cluster. Usable from any terminal by the folder of the cluster."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from confluent_kafka import KafkaException
from rich.table import Table

from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import DEFAULT, VERSIONS, Plan, formatted, plan_cluster, read_plan
from streaming.errors import ConfigurationError
from streaming.runtime.jars import JMX_AGENT, jar_paths
from streaming.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Run a real Kafka cluster on this machine and inject faults.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Terminal()

Root = Annotated[Path, typer.Option("--root", help="Folder of the cluster: data, logs, state.")]
NodeId = Annotated[int, typer.Argument(help="A broker (1, 2, ...) or a controller (101, 102, ...).")]
DEFAULT_ROOT = Path(".isrwatch/sandbox")
_LOOK_SECONDS: Final = 0.3
TOOLS: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
"""Kafka's scripts and the classes that they start, of the default version; others have some elsewhere."""
MOVED: Final = {"4.4": {"kafka-configs": "org.apache.kafka.tools.ConfigCommand"}}


def _existing(file: Path | None) -> Path | None:
    """Refuse a file that is not there."""
    if file is not None and not file.is_file():
        raise ConfigurationError(f"--jmx-config: there is no file {file}")
    return file


@app.command()
def up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Number of brokers; their ids are 1, 2, ...")] = 3,
    controllers: Annotated[int, typer.Option(min=1, max=5, help="Number of controllers: 101, 102, ...")] = 1,
    combined: Annotated[
        bool, typer.Option("--combined", help="Run the controllers in the first brokers, not as nodes of their own.")
    ] = False,
    version: Annotated[str, typer.Option(help=f"Version of Kafka: {', '.join(VERSIONS)}.")] = DEFAULT,
    zookeeper: Annotated[
        bool, typer.Option("--zookeeper", help="ZooKeeper instead of controllers; up to Kafka 3.9.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    settings: Annotated[
        list[str] | None, typer.Option("--override", metavar="KEY=VALUE", help="A property of all nodes; repeatable.")
    ] = None,
    jmx_config: Annotated[
        Path | None, typer.Option(dir_okay=False, callback=_existing, help="Run the JMX exporter in each broker.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready; stop it with: down.")] = False,
) -> None:
    """Start a cluster, or the existing one in the folder. Ctrl-C stops it and keeps its data."""
    if formatted(root):
        plan = read_plan(root)
        if (brokers, 0 if plan.zookeeper else controllers) != (len(plan.brokers), len(plan.controllers)):
            raise ConfigurationError(
                f"{root} holds a sandbox of {len(plan.brokers)} brokers and {len(plan.controllers)} controllers: start "
                "it with these numbers, or delete it first: isrwatch sandbox down"
            )
    else:
        plan = plan_cluster(
            brokers=brokers,
            controllers=controllers,
            properties=_pairs("--override", settings or []),
            jmx_config=jmx_config,
            combined=combined,
            version=version,
            zookeeper=zookeeper,
        )
    _fetch(plan)
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
    """Show the nodes and the bootstrap servers."""
    sandbox = _opened(root)
    table = Table("node", "role", "address", "process")
    for node, ports in sandbox.plan.ports().items():
        roles = {"broker": sandbox.broker_ids, "controller": sandbox.controller_ids}
        role = ", ".join(name for name, nodes in roles.items() if node in nodes)
        table.add_row(str(node), role, f"127.0.0.1:{ports.client}", sandbox.state(node))
    console.print(table)
    console.print(f"Bootstrap servers: {sandbox.bootstrap_servers}", soft_wrap=True)
    if sandbox.plan.jmx_config:
        for broker in sandbox.broker_ids:
            console.print(f"Metrics of broker {broker}: {sandbox.metrics_url(broker)}", soft_wrap=True)
    console.print(f"Logs: {sandbox.root}/node-*/server.log", soft_wrap=True)


@app.command("create-topic")
def create_topic(
    name: Annotated[str, typer.Argument(help="Name of the new topic.")],
    *,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 6,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Replicas of each partition; default: 3, or one per broker if fewer.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A property, such as min.insync.replicas=2; repeatable."),
    ] = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Create a topic; a new cluster has none."""
    sandbox, configs = _opened(root), _pairs("--config", settings or [])
    factor = replication_factor or min(3, len(sandbox.broker_ids))
    try:
        sandbox.admin.create_topic(name, partitions=partitions, replication_factor=factor, configs=configs)
    except KafkaException as error:
        reason = error.args[0]
        text = reason if isinstance(reason, str) else reason.str()
        raise ConfigurationError(f"Kafka refuses the topic {name}: {text}") from None
    console.print(f"topic {name} was created: {partitions} partitions, replication factor {factor}")


@app.command("tool", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def tool(
    name: Annotated[str, typer.Argument(help=f"{', '.join(TOOLS)}; or the class of any other tool.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="As the tool takes them.")] = None,
    *,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Run one of Kafka's own tools on the cluster; --bootstrap-server is added. Put --root before its name.

    Example: isrwatch sandbox tool kafka-console-producer --topic orders
    """
    if "." not in TOOLS.get(name, name):
        raise ConfigurationError(f"there is no tool {name}; name one of {', '.join(TOOLS)}, or a class")
    sandbox = _opened(root)
    main = {**TOOLS, **MOVED.get(sandbox.plan.version, {})}.get(name, name)
    command = [str(part) for part in sandbox.tool_command(main, *(arguments or ()))]
    os.execv(command[0], command)  # noqa: S606 - it gets this terminal: what is typed, and Ctrl-C


@app.command("compare-schemas")
def compare_schemas(
    before: Annotated[str, typer.Argument(help=f"Of {', '.join(VERSIONS)}, or a folder with Kafka's jars.")],
    after: Annotated[str, typer.Argument(help="As above.")],
) -> None:
    """Compare the message schemas in the jars of two versions of Kafka, and name what concerns isrwatch.

    The exit code is 1 if isrwatch cannot read what the second version writes or answers.

    Example: isrwatch sandbox compare-schemas 4.3 4.4
    """
    from deploy.sandbox.schemas import differences, read_schemas

    schemas = [read_schemas(_jars_of(each)) for each in (before, after)]
    differing = differences(*schemas)
    count = len({*schemas[0], *schemas[1]})
    console.print(f"Kafka {before} -> {after}: {len(differing)} of {count} messages differ", soft_wrap=True)
    for each in differing:
        if each.is_read is not None:
            for line in each.lines():
                console.print(line, soft_wrap=True)
    others = ", ".join(each.name for each in differing if each.is_read is None)
    console.print(f"not asked by isrwatch: {others or 'none'}", soft_wrap=True)
    if any(each.is_read is False for each in differing):
        raise typer.Exit(1)


@app.command()
def kill(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Kill a node (SIGKILL); it is fenced when its session expires."""
    _opened(root).kill(node)
    console.print(f"node {node} was killed; start it again: isrwatch sandbox start {node}")


@app.command()
def stop(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Shut down a node (SIGTERM): a controlled shutdown, which moves its leaderships first."""
    with console.status("controlled shutdown"):
        _opened(root).stop(node)
    console.print(f"node {node} has stopped; start it again: isrwatch sandbox start {node}")


@app.command()
def pause(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Pause a node (SIGSTOP): it hangs, its connections stay open."""
    _opened(root).pause(node)
    console.print(f"node {node} is paused; resume it: isrwatch sandbox resume {node}")


@app.command()
def resume(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Resume a paused node (SIGCONT)."""
    _opened(root).resume(node)
    console.print(f"node {node} is running")


@app.command()
def start(node: NodeId, root: Root = DEFAULT_ROOT) -> None:
    """Start a node that was killed or stopped."""
    with console.status("starting"):
        _opened(root).start(node)
    console.print(f"node {node} is ready")


@app.command()
def down(
    root: Root = DEFAULT_ROOT,
    keep_data: Annotated[bool, typer.Option("--keep", help="Keep data and logs for the next `up`.")] = False,
) -> None:
    """Kill all nodes and delete the folder of the cluster."""
    sandbox = _opened(root)
    sandbox.down()
    if not keep_data:
        shutil.rmtree(sandbox.root)
    console.print("the sandbox is down" + (f"; its data stays in {root}" if keep_data else " and deleted"))


def _stay(sandbox: Sandbox) -> None:
    """Keep the cluster running until Ctrl-C, or until another terminal has taken it down and deleted its folder."""
    try:
        _greet(sandbox)
        console.print("Ctrl-C stops it.")
        with suppress(KeyboardInterrupt):
            while formatted(sandbox.root):  # more often than another up could format the folder again
                time.sleep(_LOOK_SECONDS)
            console.print("the sandbox was taken down")
    finally:
        with console.status("stopping"):
            sandbox.__exit__(None, None, None)


def _greet(sandbox: Sandbox) -> None:
    console.print(f"Kafka is ready: {sandbox.bootstrap_servers}", soft_wrap=True)
    console.print(f"Cluster id {sandbox.cluster_id}, data and logs in {sandbox.root}", soft_wrap=True)
    option = "" if sandbox.root == DEFAULT_ROOT.absolute() else f" --root {sandbox.root}"
    console.print(f"Create a topic: isrwatch sandbox create-topic orders{option}", soft_wrap=True)
    console.print(f"Inject a fault: isrwatch sandbox kill {sandbox.broker_ids[-1]}{option}", soft_wrap=True)


def _opened(root: Path) -> Sandbox:
    return Sandbox(read_plan(root), root)


def _jars_of(version: str) -> tuple[Path, ...]:
    """Return the jars of a version of the sandbox, or of a folder."""
    if version in VERSIONS:
        return jar_paths(VERSIONS[version])
    jars = tuple(sorted(Path(version).rglob("*.jar")))
    if not jars:
        raise ConfigurationError(f"{version} is neither of {', '.join(VERSIONS)} nor a folder with jars of Kafka")
    return jars


def _fetch(plan: Plan) -> None:
    with console.status("fetching Kafka") as shown:
        groups = (plan.jars, JMX_AGENT) if plan.jmx_config is not None else (plan.jars,)
        jar_paths(*groups, progress=lambda file: shown.update(f"fetching Kafka: {file}"))


def _pairs(option: str, settings: list[str]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for key, sign, _ in pairs:
        if not (key and sign):
            raise ConfigurationError(f"{option} {key!r} is not KEY=VALUE, like log.segment.bytes=1048576")
    return {key: value for key, _, value in pairs}
