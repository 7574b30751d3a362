"""A real NATS server for the tests, and an executor where Go can build one. Without Go they are skipped, loudly."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from toolbus import Bus, Worker
from toolbus.tools import AnyTool

ROOT = Path(__file__).resolve().parents[3]


def build(target: str, into: Path) -> str:
    """A program of the repository, or of a module that it needs; TOOLBUS_TEST_<NAME> names one that is built already."""
    name = target.rstrip("/").split("/")[-1].replace("v2", "nats-server")
    if built := os.environ.get(f"TOOLBUS_TEST_{name.replace('-', '_').upper()}"):
        return built
    if shutil.which("go") is None or not (ROOT / "go.mod").exists():
        warnings.warn(f"SKIPPED: no Go to build {name} with: nothing is tested against a server", stacklevel=1)
        pytest.skip(f"no Go to build {name} with")
    out = into / name
    subprocess.run(["go", "build", "-o", str(out), target], cwd=ROOT, check=True, timeout=300)
    return str(out)


def free_port() -> int:
    """Below what systems give out on their own, so that nobody takes it before the server does."""
    for _ in range(100):
        port = random.randrange(12000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def listens(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server's INFO comes."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
                if s.recv(4) == b"INFO":
                    return
        except OSError:
            time.sleep(0.02)
    raise TimeoutError(f"nothing answers on port {port}")


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    dir_ = tmp_path_factory.mktemp("nats")
    port = free_port()
    server = build("github.com/nats-io/nats-server/v2", dir_)
    process = subprocess.Popen(
        [server, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(dir_ / "store")], stderr=subprocess.DEVNULL
    )
    try:
        listens(port, process)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


@pytest.fixture(scope="session")
def executor_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An executor with a server of its own."""
    dir_ = tmp_path_factory.mktemp("executor")
    port = free_port()
    process = subprocess.Popen(
        [build("./cmd/executor", dir_), "dev", "--port", str(port), "--store-dir", str(dir_ / "store")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        listens(port, process)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest_asyncio.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    """The other side of a worker."""
    made = await Bus.connect(nats_url)
    yield made
    await made.close()


@asynccontextmanager
async def serving(url: str, *tools: AnyTool, prefix: str = "", **options: Any) -> AsyncIterator[Worker]:
    """A worker that runs, and is shut down at the end."""
    own = await Bus.connect(url, prefix=prefix)
    worker = Worker(own, tools, **options)
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(worker.ready.wait(), 10)
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 20)
        await own.close()
