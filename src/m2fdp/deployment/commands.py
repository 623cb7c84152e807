"""The command `m2fdp`: plan, keys, serve, join, check and demo."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from m2fdp.assignments import read_assignments
from m2fdp.command_errors import BadInput, have_streams
from m2fdp.core.errors import InputError
from m2fdp.deployment import keys
from m2fdp.deployment.metrics import served
from m2fdp.deployment.status import Line, as_json, kept
from m2fdp.interruption import end_in_one_line

_FILE = click.Path(path_type=Path)


class _OneLineEnds(click.Group):
    """Commands that bad input and a full disk end in one line each."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (InputError, OSError) as error:
            raise _in_one_line(error) from None


def _in_one_line(error: Exception) -> click.ClickException:
    if isinstance(error, click.ClickException):
        return error
    if isinstance(error, OSError):
        return click.ClickException(f"{error.strerror}: {error.filename}")
    return BadInput(str(error))


@click.group(name="m2fdp", cls=_OneLineEnds)
def main() -> None:
    """A tree of real processes: one plan, signed; each node with its own keys, state and budget."""
    have_streams()
    end_in_one_line()


def _params(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> Any:
    """What `--params` says each time that it is given; the later wins."""
    return read_assignments(texts)


_PARAMS = click.option(
    "--params", multiple=True, callback=_params, help="Keys: KEY=VALUE,KEY=VALUE."
)
_SOURCE = "A folder or file of parameters, such as conf/mnist; before --params."
_CONFIG = click.option("--config", type=_FILE, multiple=True, help=_SOURCE)
_LOG = "Lines for people, or each a JSON object."
_METRICS = "Have /metrics, for Prometheus, and /health there; by default for this host alone."


def _as_node(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every node."""
    beside = "Folder of its state; by default state/NAME beside the plan."
    options = (
        click.argument("plan", type=_FILE),
        click.option("--as", "name", metavar="NAME", required=True, help="Which node this is."),
        click.option("--keys", type=_FILE, required=True, help="Folder of its keys."),
        click.option("--state", type=_FILE, help=beside),
        click.option("--rehearsal", is_flag=True, help="Take part in a rehearsal."),
        click.option("--log", type=click.Choice(["text", "json"]), default="text", help=_LOG),
        click.option("--metrics", metavar="[HOST:]PORT", help=_METRICS),
    )
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@_PARAMS
@_CONFIG
@click.option("--nodes", type=_FILE, required=True, help="Addresses, records, shape, classes.")
@click.option("--authority", type=_FILE, required=True, help="Folder of the authority that signs.")
@click.option("-o", "out", type=_FILE, required=True, help="The plan's file.")
def plan(config: tuple[Path, ...], params: Any, nodes: Path, authority: Path, out: Path) -> None:
    """Calibrate, sign, and print what every device will have spent."""
    from m2fdp.deployment.facts import check_deployment, read_facts
    from m2fdp.given.loading import load_config
    from m2fdp.tables.schema import schema_of

    configuration = load_config(*config, params)
    facts = read_facts(nodes, schema_of(configuration.dataset))
    check_deployment(configuration)
    from m2fdp.deployment.plan import make_plan  # imports torch, which a refusal needs not

    made = make_plan(configuration, facts)
    made.save(out, authority)
    click.echo(f"{out}: " + "\n".join(made.told()))


@main.command()
@click.argument("tree", type=_FILE)
@click.option("-o", "out", type=_FILE, default=Path("federation"), show_default=True)
@click.option("--no-keys", is_flag=True, help="Each node makes its own (m2fdp keys request).")
def init(tree: Path, out: Path, no_keys: bool) -> None:
    """Of one file TREE make an authority, the signed plan, and a folder a node to hand out."""
    from m2fdp.deployment.handing_out import hand_out

    hand_out(tree, out, not no_keys, click.echo)


@main.command()
@click.argument("plan", type=_FILE)
@click.option("--after", type=int, required=True, help="The last round that PLAN has.")
@click.option("--add", multiple=True, metavar="NAME:SERVER=RECORDS", help="A new device.")
@click.option("--retire", multiple=True, metavar="NAME", help="A device that leaves.")
@_PARAMS
@click.option("--authority", type=_FILE, required=True, help="Folder of the authority that signs.")
@click.option("-o", "out", type=_FILE, required=True, help="The amendment's file.")
def amend(
    plan: Path, after: int, add: Any, retire: Any, params: Any, authority: Path, out: Path
) -> None:
    """Sign what continues PLAN after a round; print what every device will have spent in all."""
    from m2fdp.deployment.amendments import amended
    from m2fdp.deployment.plan import load_plan

    signed = load_plan(plan, keys.authority_of(authority))
    made = amended(signed, after, add, retire, params)
    made.save(out, authority)
    click.echo(f"{out}: " + "\n".join(made.told()))


@main.group(name="keys")
def certificates() -> None:
    """Certificates: an authority's, and those of nodes that it signs."""


@certificates.command(name="authority")
@click.argument("folder", type=_FILE)
def make_authority(folder: Path) -> None:
    """Make an authority in FOLDER, which stays on a host that is no node's."""
    keys.make_authority(folder)
    click.echo(f"{folder}: keep authority.key to yourself")


@certificates.command(name="request")
@click.argument("name")
@click.option("--keys", "folder", type=_FILE, required=True, help="Folder of the node's keys.")
def make_request(name: str, folder: Path) -> None:
    """Make a key for NAME, on its own host, and the request for its certificate."""
    click.echo(f"{keys.request(name, folder)}: send it to the authority")


@certificates.command(name="sign")
@click.argument("request", type=_FILE)
@click.option("--authority", type=_FILE, required=True, help="Folder of the authority.")
@click.option("--days", type=click.IntRange(min=1), default=365, show_default=True)
def sign_request(request: Path, authority: Path, days: int) -> None:
    """Sign REQUEST, once you know that it is that node's."""
    signed = keys.sign(request, authority, days)
    click.echo(f"{signed}: send it back with authority.pem, into the node's folder of keys")


@certificates.command(name="revoke")
@click.argument("name")
@click.option("--authority", type=_FILE, required=True, help="Folder of the authority.")
@click.option("-o", "out", type=_FILE, default=Path(keys.REVOKED), show_default=True)
def revoke_certificates(name: str, authority: Path, out: Path) -> None:
    """Revoke all certificates of NAME that were made until now."""
    number = keys.revoke(name, authority, out)
    click.echo(f"{out}: number {number}; put it into each node's folder of keys")


@main.command()
@_as_node
@click.option("--listen", metavar="HOST:PORT", help="Instead of the plan's address, to listen at.")
@click.option("--data", help="The cloud's: records to evaluate on, as a device's.")
@click.option("--out", type=_FILE, default=Path("."), help="The cloud's: folder of the project.")
def serve(listen: str | None, data: str | None, out: Path, **node: Any) -> None:
    """Be a server of PLAN, the cloud among them, until the run is over."""
    from m2fdp.deployment import process
    from m2fdp.deployment.opened import followed

    with _opened(False, data=data, **node) as opened:
        if opened.node.layer > 0:
            ended = followed(opened, lambda node: process.run_server(node, listen))
        else:
            ended, as_planned = followed(opened, lambda node: process.run_cloud(node, listen, out))
            if not as_planned:
                raise click.ClickException(ended)
        opened.tell(Line(ended, "end"))


@main.command()
@_as_node
@click.option("--data", required=True, help="Its records: a .npz file with x and y, or a table.")
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="Epsilon that it may spend in all, earlier runs of this state among them.",
)
@click.option(
    "--trusts", multiple=True, metavar="SERVER", help="A server that may be sent un-noised vectors."
)
def join(data: str, budget: float, trusts: tuple[str, ...], **node: Any) -> None:
    """Be a device of PLAN until the run is over."""
    from m2fdp.deployment import process
    from m2fdp.deployment.opened import followed

    given = data, budget, frozenset(trusts)
    with _opened(True, **node) as opened:
        ended = followed(opened, lambda node: process.run_device(node, *given))
        opened.tell(Line(ended, "end"))


@contextmanager
def _opened(device: bool, name: str, log: str, metrics: str | None, **node: Any) -> Iterator[Any]:
    """A node that may take part, with all that an operator sees of it, however it ends."""
    from m2fdp.deployment.opened import open_node

    tell = as_json(name, click.echo) if log == "json" else click.echo
    try:
        opened = open_node(device, tell, name=name, **node)
        with served(opened.status.content, metrics), kept(opened.status):
            yield opened
    except (InputError, OSError, click.ClickException) as error:
        ends = _in_one_line(error)
        if log != "json":
            raise ends from None
        tell(Line(ends.message, "error", "error"))
        click.get_current_context().exit(ends.exit_code)


@main.command()
@click.argument("plan", type=_FILE)
@click.option("--as", "name", metavar="NAME", required=True, help="Which node.")
@click.option("--keys", "folder", type=_FILE, required=True, help="Folder of its keys.")
def check(plan: Path, name: str, folder: Path) -> None:
    """What a node of PLAN would send to whom, behind how much noise, at which epsilon."""
    from m2fdp.deployment.node_plan import node_plan
    from m2fdp.deployment.plan import load_plan, recompute
    from m2fdp.deployment.process import told_of

    loaded = load_plan(plan, keys.read_identity(name, folder).authority)
    for line in told_of(node_plan(loaded, recompute(loaded), name)):
        click.echo(line)


@main.command()
@_PARAMS
@_CONFIG
@click.option("--folder", type=_FILE, help="Where its files stay; by default they are removed.")
@click.option("--masks", is_flag=True, help="Servers read sums only, of both tiers' senders.")
def demo(config: tuple[Path, ...], params: Any, folder: Path | None, masks: bool) -> None:
    """A rehearsal on this machine: 7 processes, and is it the simulator's run to the byte?"""
    from m2fdp.deployment.demo import rehearse

    if not rehearse([*config, params], folder, click.echo, masks):
        raise click.ClickException("the run is not the simulator's")
