"""What an operator asks of the SuperLink, by Flower's own command `flwr`.

Starting that command costs seconds, so several requests go to one process: `python -m accord.federation.control`.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from accord.config.toml import literal
from accord.errors import RunError
from accord.federation.surroundings import surroundings

CONNECTION = "accord"  # the name of the SuperLink in Flower's configuration
Answer = dict[str, Any]


def write_connection(home: Path, address: str, authority: Path) -> None:
    """Flower's configuration: where the SuperLink is, and by which certificate it is known."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [
        "[superlink]",
        f"default = {literal(CONNECTION)}",
        f"[superlink.{CONNECTION}]",
        f"address = {literal(address)}",
        f"root-certificates = {literal(str(authority))}",
    ]
    (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def register(home: Path, keys: Sequence[Path]) -> None:
    """Let the nodes with these public keys in; those that are in already stay."""
    answers = asked(home, [["supernode", "register", str(key), CONNECTION] for key in keys])
    for key, answer in zip(keys, answers, strict=True):
        said = str(answer.get("error-message", answer))
        if not answer.get("success") and "already in use" not in said:
            raise RunError(f"the SuperLink does not take the key {key}: {said}")


def unregister(home: Path, keys: Sequence[Path]) -> None:
    """Shut the nodes with these public keys out; what the SuperLink does not know, or has shut out, stays as it is."""
    (answer,) = _answers(home, "--unregister", json.dumps([str(key) for key in keys]))
    if not answer.get("success"):
        raise RunError(f"the SuperLink does not shut the nodes out: {answer.get('error-message', answer)}")


def nodes(home: Path) -> list[Answer]:
    """The SuperLink's nodes: `node-id` and `status` (registered, online, offline) of each."""
    (answer,) = asked(home, [["supernode", "list", CONNECTION]])
    if not answer.get("success"):
        raise RunError(f"the SuperLink does not answer: {answer.get('error-message', answer)}")
    return list(answer["nodes"])


def stop(home: Path, run: str) -> None:
    """Stop a run; one that has ended stays as it is."""
    asked(home, [["stop", run, CONNECTION]])


def asked(home: Path, commands: Sequence[Sequence[str]]) -> list[Answer]:
    """The answers to several commands of `flwr`, each as Flower's JSON."""
    return _answers(home, json.dumps([list(words) for words in commands]))


def _answers(home: Path, *given: str) -> list[Answer]:
    words = [sys.executable, "-m", "accord.federation.control", *given]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=surroundings(home))  # noqa: S603
    try:
        answers: list[Answer] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise RunError(f"Flower's command gave no answer: {''.join(last) or f'exit code {done.returncode}'}") from None
    return answers


def begin_following(home: Path, app: Path, settings: Path, log: Path) -> subprocess.Popen[str]:
    """Start a run and follow it in a process that ends with it: first line, that it is started; last, how it ended.

    `settings` is a TOML file; what the run says goes to `log`.
    """
    given = json.dumps({"app": str(app), "settings": str(settings), "log": str(log)})
    words = [sys.executable, "-m", "accord.federation.control", "--follow", given]
    return subprocess.Popen(  # noqa: S603
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings(home), start_new_session=True
    )


def _flwr(words: Sequence[str]) -> Answer:
    """One command in this process."""
    import click
    from flwr.cli.app import app

    taken, real, ours = io.StringIO(), sys.__stdout__, (sys.stdout, sys.stderr)
    sys.__stdout__ = taken  # type: ignore[misc, assignment]  # where Flower writes JSON, and what it leaves as sys.stdout
    try:
        app([*words, "--format", "json"], standalone_mode=False)
    except click.ClickException as error:
        return {"success": False, "error-message": error.format_message()}
    except (click.exceptions.Exit, SystemExit, Exception) as error:
        if not taken.getvalue().strip():
            return {"success": False, "error-message": f"{type(error).__name__}: {error}"}
    finally:
        sys.__stdout__ = real  # type: ignore[misc]
        sys.stdout, sys.stderr = ours
    try:
        answer: Answer = json.loads(taken.getvalue())
    except ValueError:
        return {"success": False, "error-message": taken.getvalue().strip() or "no answer"}
    return answer


def _follow(app: str, settings: str, log: str) -> None:
    from flwr.cli.app import app as flwr

    begun = _flwr(["run", app, CONNECTION, "--run-config", settings])
    print(json.dumps(begun), flush=True)
    if not begun.get("success"):
        return
    run = str(begun["run-id"])
    with open(log, "a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file), suppress(Exception):
        flwr(["log", run, CONNECTION], standalone_mode=False)  # ends when the run does, or the SuperLink
    print(json.dumps(_flwr(["list", CONNECTION, "--run-id", run])), flush=True)


def _unregister(keys: Sequence[str]) -> Answer:
    """Flower's command asks for numbers; which number has a key, only its interface tells."""
    from flwr.cli.flower_config import read_superlink_connection
    from flwr.cli.utils import init_http_client_from_connection
    from flwr.proto.control_pb2 import ListNodesRequest

    from accord.flower.keys import public_pem

    unwanted = {public_pem(Path(key)) for key in keys}
    with redirect_stdout(sys.stderr):  # Flower says whom it asks; the answer here is JSON alone
        client = init_http_client_from_connection(read_superlink_connection(CONNECTION))
    with closing(client):
        known = list(client.ListNodes(ListNodesRequest()).nodes_info)
    for node in known:
        if bytes(node.public_key) in unwanted and node.status != "unregistered":
            answer = _flwr(["supernode", "unregister", str(node.node_id), CONNECTION])
            if not answer.get("success"):
                return answer
    return {"success": True}


def main(words: Sequence[str]) -> None:
    """One JSON list of the answers, or a run that is followed."""
    if words[0] == "--follow":
        _follow(**json.loads(words[1]))
    elif words[0] == "--unregister":
        print(json.dumps([_unregister(json.loads(words[1]))]))
    else:
        print(json.dumps([_flwr(command) for command in json.loads(words[0])]))


if __name__ == "__main__":
    main(sys.argv[1:])
