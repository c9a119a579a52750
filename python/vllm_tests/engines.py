"""Real vLLM servers on the CPU, and requests the way a router makes them."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("KVBATON_VLLM", ROOT / ".vllm"))
# Longest wait for a server to start, and for an answer, in seconds.
STARTUP, PATIENCE = 600, 300

OURS = {"kv_connector": "KvBatonConnector", "kv_connector_module_path": "kvbaton.vllm"}
STOCK = {
    "kv_connector": "MooncakeConnector",
    "kv_connector_extra_config": {"mooncake_protocol": "tcp"},
}
ROLES = {"p": "kv_producer", "d": "kv_consumer", "both": "kv_both"}


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        return server.getsockname()[1]


def connector(kind: str, role: str, extra: dict | None = None, **more) -> dict:
    """A --kv-transfer-config; `kind` is "ours" or "stock"."""
    config = dict(OURS if kind == "ours" else STOCK, kv_role=ROLES[role], **more)
    if extra:
        config["kv_connector_extra_config"] = {
            **config.get("kv_connector_extra_config", {}),
            **extra,
        }
    return config


@dataclass
class Answer:
    """What a streamed completion said."""

    tokens: list[list[int]] = field(default_factory=list)
    first: float | None = None
    errors: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    took: float = 0.0


class Engine:
    """One server; started in the background, used once `ready`."""

    def __init__(
        self,
        version: str,
        config: dict | None,
        *flags: str,
        dtype: str = "float32",
        bootstrap: int | None = None,
        log: pathlib.Path,
        **environment: str,
    ) -> None:
        self.port, self.bootstrap = free_port(), bootstrap or free_port()
        venv = HOME / version
        command = [
            venv / "bin" / "vllm", "serve", HOME / "tiny", "--served-model-name", "tiny",
            "--host", "127.0.0.1", "--port", self.port, "--dtype", dtype,
            "--max-model-len", 8192, "--enforce-eager", "--max-num-seqs", 8, *flags,
        ]  # fmt: skip
        if config is not None:
            command += ["--kv-transfer-config", json.dumps(config)]
        env = {
            **os.environ,
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(venv),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "PYTHONHASHSEED": "0",
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CACHE_ROOT": str(HOME / "cache"),
            "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(self.bootstrap),
            # The API for pausing, and for calling into workers; their module lies here.
            "VLLM_SERVER_DEV_MODE": "1",
            "PYTHONPATH": str(pathlib.Path(__file__).parent),
            **environment,
        }
        self.log_file = log
        with open(log, "w") as out:
            self.process = subprocess.Popen(
                [str(it) for it in command],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )

    def ready(self) -> "Engine":
        """Waits until it serves."""
        until = time.monotonic() + STARTUP
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"vLLM ended with {self.process.returncode}:\n{self.tail()}")
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return self
            time.sleep(0.5)
        raise RuntimeError(f"vLLM did not start in {STARTUP} s:\n{self.tail()}")

    def fails_to_start(self) -> str:
        """Waits until it has given up; its log."""
        self.process.wait(STARTUP)
        return self.log()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def tail(self) -> str:
        return "\n".join(self.log().splitlines()[-60:])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the server and every process that it started."""
        if self.process.poll() is None and how is signal.SIGTERM:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def signal(self, what: signal.Signals) -> None:
        """Sends a signal to all of its processes."""
        os.killpg(self.process.pid, what)

    def metrics(self) -> dict[str, float]:
        """The engine's /metrics, by series without the labels that every series has."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line.startswith("#") or "_created" in line:
                continue
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            kept = [it for it in labels.rstrip("}").split(",") if it]
            kept = [it for it in kept if not it.startswith(("engine=", "model_name="))]
            found[name + ("{" + ",".join(kept) + "}" if kept else "")] = float(value)
        return found

    def cpu_seconds(self) -> float:
        """Processor time that all of its processes have used."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                # Fields 5 and 14, 15 of proc(5), counted from the state on.
                if int(fields[3]) == self.process.pid:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def engine_id(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.bootstrap}/query") as answer:
            return json.load(answer)["0"]["engine_id"]

    def ask(self, path: str, body: dict) -> dict:
        """A request with an answer in JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def post(self, path: str, body: dict | None = None) -> int:
        """A request without an answer that matters; its status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        payload = json.dumps(body) if body is not None else None
        connection.request("POST", path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status

    def complete(self, prompt: list[int], count: int, params: dict | None = None, **more) -> Answer:
        """Streams a completion to its end."""
        with self.completing(prompt, count, params, **more) as lines:
            return read(lines)

    @contextlib.contextmanager
    def completing(self, prompt, count, params=None, **more) -> Iterator[http.client.HTTPResponse]:
        """A completion under way; leaving early disconnects the client."""
        body = {
            "model": "tiny", "prompt": prompt, "max_tokens": count, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True, "stream": True, **more,
        }  # fmt: skip
        if params:
            body["kv_transfer_params"] = params
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        try:
            yield connection.getresponse()
        finally:
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()


def read(lines: http.client.HTTPResponse) -> Answer:
    answer, start = Answer(), time.perf_counter()
    for line in lines:
        line = line.strip()
        if not line:
            continue
        if not line.startswith(b"data:"):
            answer.errors.append(line.decode())
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            break
        if answer.first is None:
            answer.first = time.perf_counter() - start
        event = json.loads(data)
        if "error" in event:
            answer.errors.append(json.dumps(event["error"]))
        for choice in event.get("choices", []):
            while len(answer.tokens) <= choice["index"]:
                answer.tokens.append([])
            answer.tokens[choice["index"]] += choice.get("token_ids") or []
            if choice.get("finish_reason"):
                answer.reasons.append(choice["finish_reason"])
    answer.took = time.perf_counter() - start
    return answer


@dataclass
class Pair:
    """A prefill and a decode, with the router between them."""

    prefill: Engine
    decode: Engine

    def params(self, transfer: str | None = None) -> tuple[dict, dict]:
        """Parameters of both requests, as routers make them for the Mooncake connector."""
        transfer = transfer or f"xfer-{uuid.uuid4().hex}"
        p = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer}
        d = {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "transfer_id": transfer,
            "remote_engine_id": self.prefill.engine_id(),
            "remote_bootstrap_addr": f"http://127.0.0.1:{self.prefill.bootstrap}",
        }
        return p, d

    def split(self, prompt: list[int], count: int, concurrent: bool = True, **more) -> Answer:
        """One request over both."""
        p, d = self.params()
        start = time.perf_counter()
        prefill = threading.Thread(target=self.prefill.complete, args=(prompt, 1, p))
        prefill.start()
        if not concurrent:
            prefill.join()
        before = time.perf_counter() - start
        answer = self.decode.complete(prompt, count, d, **more)
        prefill.join()
        if answer.first is not None:
            answer.first += before
        return answer


def prompt(length: int, seed: int) -> list[int]:
    """Token ids of a made-up prompt, none of them special."""
    numbers = random.Random(seed)
    return [numbers.randrange(2, 2040) for _ in range(length)]


def together(calls: list) -> list:
    """Results of calls that run at the same time."""
    results: list = [None] * len(calls)

    def run(index: int) -> None:
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
