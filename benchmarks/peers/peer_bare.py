"""A loop over clients as one would write it by hand, on one thread."""

from __future__ import annotations

import copy

import torch
from work import SETTINGS, Turns, accuracy, arguments, network, rounds, samples, train


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    setting = SETTINGS[args.setting]
    turns = Turns(args)
    x, y = (torch.from_numpy(a).to(args.device) for a in samples(setting))
    test = [torch.from_numpy(a).to(args.device) for a in samples(setting, test=True)]
    server = network(args.setting, args.dropout).to(args.device)
    cohort = setting.cohort // args.share
    for number in range(1, rounds(args) + 1):
        total = [torch.zeros_like(p) for p in server.parameters()]
        for client in torch.randperm(setting.clients)[:cohort].tolist():
            model = copy.deepcopy(server)
            own = slice(client * setting.samples, (client + 1) * setting.samples)
            train(model, x[own], y[own], setting)
            for mean, trained in zip(total, model.parameters(), strict=True):
                mean.add_(trained.detach(), alpha=1 / cohort)
        with torch.no_grad():
            for weight, mean in zip(server.parameters(), total, strict=True):
                weight.copy_(mean)
        if setting.evaluate_every and number % setting.evaluate_every == 0:
            accuracy(server, *test)
        turns.round_ended(number)


if __name__ == "__main__":
    main()
