"""Line protocol of the peer scripts: one JSON object a line, commands in, answers out.

Commands look like {"op": "get", "offset": 0, "len": 16}. Each gets exactly one answer line.
An answer of {"error": "..."} says what was wrong with the command. The end of stdin, or the
command {"op": "quit"}, ends the process.
"""

import json
import os
import sys

# Native libraries print to descriptor 1 as they like; answers get a descriptor of their own.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(message):
    """Writes one answer line, at once."""
    _answers.write(json.dumps(message) + "\n")
    _answers.flush()


def commands(lines=None):
    """Yields each command from stdin until it ends or says quit."""
    for line in lines or sys.stdin:
        if not line.strip():
            continue
        try:
            command = json.loads(line)
        except ValueError as error:
            say({"error": f"not a JSON object: {error}"})
            continue
        if command.get("op") == "quit":
            return
        yield command


def serve(operations):
    """Answers commands with operations[op](command) until stdin ends, then exits.

    Leaves without destructors: engines with threads of their own do not all end cleanly.
    """
    for command in commands():
        operation = operations.get(command.get("op"))
        if operation is None:
            say({"error": f"unknown op {command.get('op')!r}; known: {sorted(operations)}"})
            continue
        try:
            say(operation(command))
        except Exception as error:  # told to the test, which fails with it
            say({"error": f"{type(error).__name__}: {error}"})
    leave()


def leave():
    """Ends the process now."""
    _answers.flush()
    os._exit(0)
