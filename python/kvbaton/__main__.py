"""``python -m kvbaton doctor``: what works on this machine, and what to do about the rest."""

import argparse
import json
import sys

from kvbaton import _doctor, __version__


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: fine; 1: found something; 2: wrong use."""
    parser = argparse.ArgumentParser(prog="python -m kvbaton", description=__doc__)
    parser.add_argument("--version", action="version", version=f"kvbaton {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="check the module, loopback transfers, vLLM and a bootstrap server",
        description="Moves KV between two nodes in this process and compares every byte, looks "
        "for a vLLM that the connector works with, and asks a bootstrap server who is "
        "registered. Exits with 1 when something is wrong.",
    )
    doctor.add_argument("--bootstrap", metavar="URL", help="also ask this server (http://host:port)")
    doctor.add_argument("--host", default="127.0.0.1", help="interface to move KV over")
    doctor.add_argument("--json", action="store_true", help="one JSON object for machines")
    chosen = parser.parse_args(arguments)

    found = list(_doctor.examine(chosen.host, chosen.bootstrap))
    wrong = any(not check.fine for check in found)
    if chosen.json:
        checks = [dict(name=it.name, fine=it.fine, says=it.says) for it in found]
        print(json.dumps(dict(fine=not wrong, checks=checks)))
    else:
        for check in found:
            print(f"{'ok ' if check.fine else 'BAD'}  {check.name}: {check.says}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
