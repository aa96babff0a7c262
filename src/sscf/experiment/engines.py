"""Engines: who does the runs. `local`: one process per run; `dask`: a cluster. The records are the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from sscf.errors import ConfigError, require
from sscf.experiment.plan import RunSpec
from sscf.experiment.runs import Runs, execute

# Called with (run id, event); event["state"] is started, progress, done, failed or busy.
Report = Callable[[str, dict[str, Any]], None]

# What a run imports. The first optimiser of a process imports torch._dynamo, which takes more than a second.
PRELOAD = ["sscf.experiment.train", "sscf.experiment.evaluate", "sklearn.cluster", "torch._dynamo"]
BUSY_SECONDS = 1.0  # how often a run that another driver works on is looked at again


def run_local(
    folder: str | os.PathLike[str],
    store: str | os.PathLike[str],
    specs: Sequence[RunSpec],
    jobs: int = 1,
    report: Report | None = None,
) -> None:
    """Do the runs in `jobs` processes at a time, each run in a process of its own.

    A run whose process dies is recorded as failed with the reason; the others go on. Ending the driver ends its runs.
    """
    if jobs < 1:
        raise ConfigError(f"jobs must be at least 1, got {jobs}")
    report = report or (lambda run, event: None)
    runs = Runs(folder)
    # A fork server that has imported torch but run nothing: a run starts in milliseconds and shares no state.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    waiting: deque[RunSpec] = deque(spec for spec in specs if not runs.done(spec.id))
    busy: list[RunSpec] = []
    active: dict[Any, _Job] = {}
    try:
        while waiting or active or busy:
            while waiting and len(active) < jobs:
                job = _Job.start(context, folder, store, waiting.popleft())
                active[job.process.sentinel] = job
                report(job.spec.id, {"state": "started"})
            if not active:
                time.sleep(BUSY_SECONDS)
            wait([*active, *(job.events for job in active.values())], timeout=BUSY_SECONDS)
            for sentinel, job in list(active.items()):
                ended = not job.process.is_alive()  # asked before draining: nothing is sent after it
                _drain(job, report)
                if ended:
                    del active[sentinel]
                    state, reason = job.end(runs)
                    if state == "busy":
                        busy.append(job.spec)
                    else:
                        report(job.spec.id, {"state": state, "reason": reason})
            for spec in [spec for spec in busy if not runs.running(spec.id)]:
                busy.remove(spec)
                if runs.record(spec.id) is None:
                    waiting.append(spec)  # the other driver gave it up
                else:
                    report(spec.id, {"state": "done" if runs.done(spec.id) else "failed", "reason": "elsewhere"})
    finally:
        for job in active.values():
            job.process.terminate()
        for job in active.values():
            job.process.join()


@dataclass
class _Job:
    spec: RunSpec
    process: Any
    events: Any
    state: str = ""

    @classmethod
    def start(cls, context: Any, folder: Any, store: Any, spec: RunSpec) -> _Job:
        receive, send = context.Pipe(duplex=False)
        arguments = (str(folder), str(store), spec.to_json(), send)
        process = context.Process(target=_child, args=arguments, name=f"sscf-run-{spec.id}", daemon=True)
        process.start()
        send.close()
        return cls(spec, process, receive)

    def end(self, runs: Runs) -> tuple[str, str | None]:
        """How the run ended; one whose process died without a word is recorded as failed."""
        self.process.join()
        self.events.close()
        if self.state:
            record = runs.record(self.spec.id)
            return self.state, record["reason"] if record else None
        code = self.process.exitcode
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"process ended with status {code}"
        if code == -signal.SIGKILL:
            reason += " (out of memory?)"
        try:
            runs.fail(self.spec, reason)
        except OSError as error:  # a full disk: the run is still missing, and said to be
            reason += f"; its failure could not be recorded ({error})"
        return "failed", reason


def _drain(job: _Job, report: Report) -> None:
    try:
        while job.events.poll():
            event = job.events.recv()
            if event["state"] == "progress":
                report(job.spec.id, event)
            else:
                job.state = event["state"]
    except (EOFError, OSError):
        pass


def _child(folder: str, store: str, spec: dict[str, Any], events: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent()

    def tell(event: dict[str, Any]) -> None:
        try:
            events.send(event)
        except BrokenPipeError:  # the driver is gone: so is this run, and it leaves no record of it
            os._exit(1)

    state = execute(folder, store, RunSpec.from_json(spec), lambda event: tell({"state": "progress", **event}))
    tell({"state": state})


def _die_with_parent() -> None:
    """End this process when its parent is gone: a killed driver leaves nothing running."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_dask(
    folder: str | os.PathLike[str],
    store: str | os.PathLike[str],
    specs: Sequence[RunSpec],
    jobs: int = 1,
    report: Report | None = None,
    scheduler: str | None = None,
    gpus: bool = False,
    retries: int = 3,
) -> None:
    """Do the runs on a dask cluster: the scheduler at an address, or `jobs` local worker processes on 127.0.0.1.

    All workers must see `folder` and `store` under the same paths. A run on a lost worker is done again elsewhere,
    up to `retries` times. With `gpus`, each run asks for the resource GPU=1.
    """
    distributed = require("distributed", "cluster")
    import dask

    report = report or (lambda run, event: None)
    runs = Runs(folder)
    folder, store = str(Path(folder).resolve()), str(Path(store).resolve())
    cluster = None
    dask.config.set({"distributed.scheduler.allowed-failures": retries})
    if scheduler is None:
        cluster = distributed.LocalCluster(
            n_workers=jobs, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        )
    try:
        with distributed.Client(scheduler or cluster) as client:
            todo = {spec.id: spec for spec in specs if not runs.done(spec.id)}
            futures = {
                client.submit(
                    _on_worker,
                    folder,
                    store,
                    spec.to_json(),
                    key=f"sscf-{spec.id}",
                    pure=False,
                    retries=retries,
                    resources={"GPU": 1} if gpus else None,
                ): spec
                for spec in todo.values()
            }
            for future in distributed.as_completed(list(futures)):
                spec = futures[future]
                if future.status == "error":
                    reason = f"lost: {future.exception()}"
                    runs.fail(spec, reason)
                    report(spec.id, {"state": "failed", "reason": reason})
                else:
                    record = runs.record(spec.id)
                    report(spec.id, {"state": future.result(), "reason": record["reason"] if record else None})
    finally:
        if cluster is not None:
            cluster.close()


def _on_worker(folder: str, store: str, spec: dict[str, Any]) -> str:
    """On a dask worker: wait while another process does the run, then do it if it is still not done."""
    while (state := execute(folder, store, RunSpec.from_json(spec))) == "busy":
        time.sleep(BUSY_SECONDS)
    return state
