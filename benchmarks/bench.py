"""Runs the benchmarks on real servers of its own: ``python benchmarks/bench.py [--only NAME ...]``.

A full run, which takes about a quarter of an hour, also writes ``results.json`` beside this file, the page
``docs/benchmarks.md`` and its charts. Anything less prints its tables, and writes the figures to where
``--json`` says.
"""

import argparse
import asyncio
import importlib
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import structlog
from machine import describe, load
from measuring import Bench, Results
from reporting import Report, Screen

HERE = Path(__file__).parent
TOPICS = ("cost", "store", "hand_over", "fairness", "scale", "recovery")
ROUNDS = {"cost": 4, "store": 3, "hand_over": 3, "fairness": 3, "scale": 3, "recovery": 3}


def run(topics: Sequence[str], *, rounds: int | None, quick: bool, screen: Screen) -> Report:
    """Measure the topics, one after another."""
    results, seconds = Results(), {}
    before = load()
    for topic in topics:
        began = time.monotonic()
        module = importlib.import_module(topic)
        with screen.progress(topic) as say:
            count = rounds or (1 if quick else ROUNDS[topic])
            asyncio.run(module.measure(Bench(topic, results, count, quick, say)))
        seconds[topic] = time.monotonic() - began
        screen.topic(results, topic, seconds[topic])
    return Report(results, {**describe(), "load_before": before, "quick": quick}, seconds)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=TOPICS, metavar="NAME", help=", ".join(TOPICS))
    parser.add_argument("--rounds", type=int, help="rounds of each topic")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it works, not how fast")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--page", type=Path, metavar="JSON", help="only make the page from these figures")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="where the page goes")
    arguments = parser.parse_args(argv)
    # what is logged below a warning is not written, as in production
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    screen = Screen()
    if arguments.page:
        Report.load(arguments.page).write_page(arguments.docs)
        return 0
    report = run(arguments.only or TOPICS, rounds=arguments.rounds, quick=arguments.quick, screen=screen)
    full = not (arguments.only or arguments.quick or arguments.rounds)
    screen.end(report)
    if target := arguments.json or (HERE / "results.json" if full else None):
        report.save(target)
        screen.wrote(target)
    if full:
        # from the file, where figures are rounded: that is what the page can be made from again
        screen.wrote(Report.load(HERE / "results.json").write_page(arguments.docs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
