"""The process that works a node's messages off, one after the other, with the client app of the node's installation.

What it keeps between two messages a new one would build to the same bits: the data, the method, the network
(`accord.flower.apps.service_of`). It ends with the SuperExec it was forked from, after a failure, after a hundred
messages, and when it holds much memory: then the next message finds a new one.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import resource
import signal
import sys
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

log = logging.getLogger("accord.federation")

DONE, LAST = b".!"  # what is said after a message: the worker stays, or it does not
MESSAGES = 100  # after so many it makes room for a new one
ROOM = 1 << 30  # bytes it may hold between two messages, beyond what it was born with


@dataclass(frozen=True)
class Errand:
    """A message to work off: where the SuperNode answers, and the word by which this one is fetched."""

    address: str
    token: str
    insecure: bool
    certificates: str | None
    attempts: int = 1

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def again(self) -> Errand:
        """For another worker: the first one has died over it."""
        return replace(self, attempts=self.attempts + 1)


def worked(orders: int, words: int, app: ClientApp) -> NoReturn:
    """Be the worker, from the fork to the end."""
    code = 1
    try:
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            signal.signal(kind, signal.SIG_DFL)  # those of the SuperExec say goodbye for it
        waiting: queue.SimpleQueue[Errand] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(orders, waiting), daemon=True).start()
        born_with = held()
        stays, count = True, 0
        while stays:
            well, count = work_off(waiting.get(), app), count + 1
            stays = well and count < MESSAGES and held() - born_with < ROOM
            os.write(words, bytes([DONE if stays else LAST]))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # nothing of the SuperExec's is closed or tidied up here


def _listen(orders: int, waiting: queue.SimpleQueue[Errand]) -> None:
    """Until the SuperExec is gone, or lets this worker go: whatever is being done is then done for nobody."""
    with os.fdopen(orders, "rb") as lines:
        for line in lines:
            waiting.put(Errand(**json.loads(line)))
    os._exit(0)


def work_off(errand: Errand, app: ClientApp) -> bool:
    """Fetch a message from the SuperNode, answer it; whether all went well."""
    client = RuntimeHttpClient.from_server_address(
        errand.address,
        errand.insecure,
        Path(errand.certificates).read_bytes() if errand.certificates else None,
        [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), RuntimeTokenHttpInterceptor(errand.token)],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))  # it ends this process if nobody wants the answer
    try:
        heartbeat.start()
        message, context, _, _ = pull_task_input(client)
        status, why = SubStatus.COMPLETED, ""
        try:
            reply = app(message, context)
        except Exception as error:
            log.exception("a message could not be worked off")
            status, why = SubStatus.FAILED, f"{type(error).__name__}: {error}"
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, why), reply_to=message)
        push_message(client, reply, context)
        push_task_output(client, context, status, why)
    except Exception:  # no answer: the SuperNode notices when the heartbeat stops, and says so to the server
        log.exception("the node could not be asked or told")
        return False
    finally:
        if heartbeat.is_running:
            heartbeat.stop()
        client.close()
    return status == SubStatus.COMPLETED


def held() -> int:
    """Bytes this process has in memory; where that cannot be seen, the most it ever had."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
