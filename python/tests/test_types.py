"""The stubs say what the extension module has."""

import subprocess
import sys


def test_stubs_and_module_agree():
    command = [sys.executable, "-m", "mypy.stubtest", "kvbaton._kvbaton", "--concise"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
