"""`semif serve`, and what `semif decide` needs to ask a server instead."""

from __future__ import annotations

import argparse
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semif.cli.arguments import add_model, add_readout, add_revision, add_threads, count
from semif.cli.terminal import EXIT_USAGE, say
from semif.errors import SemifError

if TYPE_CHECKING:
    from semif.serving.client import LogprobsDecider, RemoteDecider

HOST, PORT = "127.0.0.1", 8411
TOKEN_ENV = "SEMIF_TOKEN"


class UsageError(SemifError):
    """Arguments that do not go together."""

    exit_code = EXIT_USAGE


def add_serve(commands: Any) -> None:
    """The parser of `semif serve`."""
    parser = commands.add_parser(
        "serve",
        help="answer decisions over HTTP",
        description="Answer POST /v1/systemone, many typed questions about one state, and GET "
        "/v1/revision and /v1/health; docs/serve.md has the form. Ends on SIGTERM and SIGINT when "
        "what is at work is answered. States are never logged.",
    )
    parser.add_argument("--host", default=HOST, help=f"address to listen on (default: {HOST})")
    parser.add_argument("--port", type=_port, default=PORT, help=f"0: a free one (default: {PORT})")
    _add_token(parser, "that requests must bear; needed unless the host is this machine's own")
    for add in (add_model, add_revision, add_readout, add_threads):
        add(parser)
    parser.add_argument("--gpu-layers", type=int, default=0, metavar="N", help="layers on the GPU")
    parser.add_argument(
        "--context", type=count, default=4096, metavar="N", help="tokens (default: 4096)"
    )
    parser.add_argument(
        "--waiting", type=count, default=32, metavar="N",
        help="requests that may wait; more are told to come back (default: 32)",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", type=count, default=65536, metavar="N",
        help="tokens that one request may take; one that needs more is refused (default: 65536)",
    )  # fmt: skip
    parser.add_argument(
        "--alone", action="store_true", help="never read the decisions of two requests together"
    )
    parser.set_defaults(run=serve)


def add_remote(parser: argparse.ArgumentParser) -> None:
    """The arguments of a command that may ask a server instead of a model here."""
    parser.add_argument(
        "--url", help="ask the server at this url, up to and with /v1; --model is then its model"
    )
    parser.add_argument(
        "--dialect",
        choices=("systemone", "openai"),
        default="systemone",
        help="of the server: POST /v1/systemone, or chat completions with top_logprobs",
    )
    _add_token(parser, "for the server")
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="of a reply (default: 10)"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="allow plain http to another machine"
    )


def serve(args: argparse.Namespace) -> int:
    """Serve until told to end: 0 after SIGTERM; SIGINT is raised again when all is closed."""
    from semif import models
    from semif.engine import Engine, load
    from semif.serving import work
    from semif.serving.remote import is_loopback
    from semif.serving.server import Limits, Server, about, address, listen

    token = _token(args)
    if token is None and not is_loopback(args.host):
        raise UsageError(
            f"--host {args.host} lets other machines ask; give --token-file or set {TOKEN_ENV}"
        )
    # Before the model is loaded: a port that is taken should not take a minute to say so.
    with listen(args.host, args.port) as bound:
        model, revision = load(args.model, args.revision, args.readout, args.gpu_layers)
        name = models.resolve(args.model).stem
        limits = Limits(
            waiting=args.waiting,
            together=0 if args.alone else Limits.together,
            tokens=args.tokens,
        )
        with Engine(model, revision, args.threads, args.context) as engine:
            said = about(name, revision, engine.limit)
            where = f"{address(bound)}/v1/systemone"
            ready = partial(say, f"revision {revision.id} of {name} answers {where}")
            cost = partial(work.tokens, model, revision, engine.limit)
            server = Server(engine, said, bound, token or "", limits, ready, cost)
            # Raised again by the server when all is closed; an order to end is then no accident.
            signal.signal(signal.SIGTERM, lambda *_: None)
            server.serve_until_ended()
    return 0


def remote(args: argparse.Namespace) -> RemoteDecider | LogprobsDecider:
    """The decider that `--url` names."""
    from semif.serving.client import LogprobsDecider, RemoteDecider

    if args.revision or args.readout:
        raise UsageError("--revision and --readout are the server's to choose, not with --url")
    if args.dialect == "openai" and not args.model:
        raise UsageError("--dialect openai needs --model, the name that the server knows it by")
    if not args.timeout > 0:
        raise UsageError("--timeout must be above 0")
    chosen = RemoteDecider if args.dialect == "systemone" else LogprobsDecider
    return chosen(
        args.url,
        args.model or "",
        token=_token(args),
        timeout=args.timeout,
        insecure=args.insecure,
    )


def _token(args: argparse.Namespace) -> str | None:
    from semif.serving.remote import read_token

    try:
        return read_token(args.token_file, TOKEN_ENV)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _add_token(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--token-file", metavar="FILE", type=Path, help=f"the token {what} (default: ${TOKEN_ENV})"
    )


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise ValueError
    return value


_port.__name__ = "port"  # how argparse names it in its message
