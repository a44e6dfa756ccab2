"""Flower's simulation runtime: FedAvg on Ray, `--cores` actors of one core and one thread each."""

from __future__ import annotations

import os

# Read when the packages below are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from work import SETTINGS, Turns, accuracy, arguments, network, rounds, stored, train


class Strict(FedAvg):
    """A round that lost clients would be a cheaper round."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple:
        replies = list(replies)
        if not replies or any(reply.has_error() for reply in replies):
            raise RuntimeError("a client failed")
        return super().aggregate_train(server_round, replies)


def client_app(name: str, dropout: bool, device: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        setting = SETTINGS[name]
        x, y = stored(name, test=False)
        first = int(context.node_config["partition-id"]) * setting.samples
        own = slice(first, first + setting.samples)
        model = network(name, dropout)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        model.to(device)
        train(model, x[own].to(device), y[own].to(device), setting)
        reply = {
            "arrays": ArrayRecord(model.cpu().state_dict()),
            "metrics": MetricRecord({"num-examples": setting.samples}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def main() -> None:
    args = arguments()
    setting = SETTINGS[args.setting]
    turns = Turns(args, "flwr", "ray")
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        model = network(args.setting, args.dropout)

        def round_ended(number: int, arrays: ArrayRecord) -> None:
            if number == 0:
                return
            if setting.evaluate_every and number % setting.evaluate_every == 0:
                model.load_state_dict(arrays.to_torch_state_dict())
                accuracy(model, *stored(args.setting, test=True))
            turns.round_ended(number)

        strategy = Strict(
            fraction_train=setting.cohort / setting.clients,
            fraction_evaluate=0.0,
            min_available_nodes=setting.clients,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=rounds(args),
            evaluate_fn=round_ended,
        )

    resources = {"num_cpus": 1, "num_gpus": 1 / args.cores if args.device == "cuda" else 0.0}
    run_simulation(
        server_app=server,
        client_app=client_app(args.setting, args.dropout, args.device),
        num_supernodes=setting.clients,
        backend_config={
            "client_resources": resources,
            "init_args": {"num_cpus": args.cores, "include_dashboard": False, "log_to_driver": False},
        },
    )


if __name__ == "__main__":
    main()
