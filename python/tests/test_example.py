"""The example and the doctor run as their documents say."""

import json
import pathlib
import subprocess
import sys

import kvbaton

ROOT = pathlib.Path(__file__).parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_numpy_between_two_processes():
    done = run(str(ROOT / "examples" / "two_processes.py"))
    assert done.returncode == 0, done.stderr
    assert "every byte is equal" in done.stdout


def test_the_doctor_is_content():
    done = run("-m", "kvbaton", "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["fine"] and [it["name"] for it in found["checks"]][:2] == ["module", "transfer"]


def test_the_doctor_asks_a_bootstrap_server():
    with kvbaton.BootstrapServer() as server:
        done = run("-m", "kvbaton", "doctor", "--bootstrap", server.url)
    assert done.returncode == 1
    assert "no prefill is registered" in done.stdout


def test_wrong_use_is_told_apart():
    assert run("-m", "kvbaton", "cure").returncode == 2
