"""How long a report of many long runs takes, and how large it is.

    python benchmarks/bench_report.py [--runs 100] [--rounds 1000] [--clients 1000] [--cohort 100] [--scroll]

One real run of that many clients gives the folder; its lines are repeated with other numbers, so that logs have the
size and the shape they would have. Prints seconds, bytes read and bytes written; with --scroll also how long a browser
(Debian's Chromium without a window, drawing without a GPU) takes for a frame while the page is scrolled to its end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

import accord
from accord.engine.ending import sealed, write_summary
from accord.report.page import write_report

METHODS = ("fedavg", "scaffold", "fedprox", "feddyn", "fedbr", "fedufo", "fedavgm", "fedyogi", "moon", "fedrane")


def one_run(home: Path, clients: int, cohort: int) -> Path:
    """A run of one round, from which the others are made."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8 * clients, 8)).astype("float32"), rng.integers(0, 10, 8 * clients)
    data = accord.from_arrays(x, y, clients=np.arange(8 * clients) % clients)
    sets = [f"clients.count={cohort}", "evaluate.drift=true", "checkpoint.every=0"]
    accord.run(data=data, algorithm="fedavg", rounds=1, out=home, name="first", sets=sets, progress=False)
    return home / "first"


def multiplied(first: Path, target: Path, method: str, seed: int, rounds: int) -> None:
    """A run like the first, of another method and seed, with that many rounds."""
    target.mkdir(parents=True)
    for name in ("identity.json", "sites.csv", "division.json"):
        if (first / name).is_file():
            shutil.copyfile(first / name, target / name)
    config = (first / "config.toml").read_text()
    config = config.replace("seed = 0 ", f"seed = {seed} ", 1).replace("rounds = 1 ", f"rounds = {rounds} ", 1)
    (target / "config.toml").write_text(config.replace('name = "fedavg"', f'name = "{method}"', 1))
    line = json.loads((first / "metrics.jsonl").read_text())
    rng = np.random.default_rng(seed)
    with open(target / "metrics.jsonl", "w") as metrics, open(target / "timings.jsonl", "w") as timings:
        for number in range(1, rounds + 1):
            line |= {"round": number, "accuracy": 1 - float(np.exp(-number / 300)) * (0.9 + 0.02 * float(rng.random()))}
            metrics.write(json.dumps(line) + "\n")
            timings.write(json.dumps({"round": number, "train": 0.1, "evaluate": 0.05}) + "\n")
    summary = json.loads((first / "summary.json").read_text())
    summary |= {"algorithm": method, "seed": seed, "rounds": rounds, "accuracy": line["accuracy"]}
    write_summary(target, sealed({k: v for k, v in summary.items() if k != "digest"}, line, "0" * 64))


# A tenth of a screen in every frame, from the top to the end; seconds between two frames.
SCROLL = """async () => {
  const laps = [];
  let before = await new Promise(requestAnimationFrame);
  while (scrollY + innerHeight < document.documentElement.scrollHeight - 1) {
    scrollBy({top: innerHeight / 10, behavior: "instant"});
    const now = await new Promise(requestAnimationFrame);
    laps.push((now - before) / 1000);
    before = now;
  }
  return laps;
}"""


def scrolled(page: Path) -> str:
    """Milliseconds a frame, in a real browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        view = browser.new_page(viewport={"width": 1440, "height": 900})
        begun = time.perf_counter()
        view.goto(page.as_uri())
        while not view.evaluate("globalThis.accord !== undefined"):
            view.wait_for_timeout(50)
        opened = time.perf_counter() - begun
        laps = 1e3 * np.array(view.evaluate(SCROLL))
        browser.close()
    slow, slowest = np.percentile(laps, [95, 100])
    return (
        f"opened in {opened:.1f} s; scrolled to its end in {len(laps)} frames: median {np.median(laps):.0f} ms, "
        f"95 % within {slow:.0f} ms, the slowest {slowest:.0f} ms"
    )


def main() -> None:
    """Make the runs, make the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("runs", 100), ("rounds", 1000), ("clients", 1000), ("cohort", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--scroll", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        first = one_run(home / "one", asked.clients, asked.cohort)
        for number in range(asked.runs):
            method = METHODS[number % len(METHODS)]
            multiplied(first, home / "many" / f"{method}-{number}", method, number // len(METHODS), asked.rounds)
        read = sum(path.stat().st_size for path in (home / "many").rglob("*") if path.is_file())
        begun = time.perf_counter()
        page = write_report([home / "many"], home / "report.html")
        seconds = time.perf_counter() - begun
        print(f"{asked.runs} runs x {asked.rounds} rounds x {asked.clients} clients: {seconds:.1f} s, ", end="")
        print(f"{read / 1e6:.0f} MB read, page {page.stat().st_size / 1e6:.2f} MB")
        if asked.scroll:
            print(scrolled(page))


if __name__ == "__main__":
    main()
