"""A stock P's control plane: a ROUTER over libzmq that answers pulls as the test scripts it.

usage: pyzmq_prefill.py [--bootstrap URL --engine ID [--tp-rank N] [--pp-rank N]] [--port N]
                        [--kvbaton JSON]

Registers at the bootstrap server the way stock does, if one is given; with --kvbaton also with
what kvbaton ranks say of themselves, as if one had lived at its address before. First line:
{"address": "tcp://host:port"}. Then answers commands (see peer_lines):
  pull {timeout_ms}    waits for the next pull: {"pull": N, "hex": "...", "fields": {...}}, or
                       {"pull": null} when none came in time; N names it in the answer
  reply {pull, fields} answers it with a msgpack map of just these fields; {"ok": true}
"""

import argparse
import json
import urllib.request

import msgpack
import zmq

from peer_lines import say, serve


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="http://host:port of the bootstrap server")
    parser.add_argument("--engine", default="stock-prefill", help="engine id to register")
    parser.add_argument("--tp-rank", type=int, default=0)
    parser.add_argument("--pp-rank", type=int, default=0)
    parser.add_argument("--kvbaton", type=json.loads, help="the field of kvbaton ranks")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    return parser.parse_args()


def register(options, address):
    """POST /register with the stock fields only."""
    rank = {
        "engine_id": options.engine,
        "dp_rank": 0,
        "tp_rank": options.tp_rank,
        "pp_rank": options.pp_rank,
        "addr": address,
    }
    if options.kvbaton:
        rank["kvbaton"] = options.kvbaton
    request = urllib.request.Request(
        options.bootstrap + "/register",
        data=json.dumps(rank).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


class Router:
    """One ROUTER socket, and the pulls that wait for their answers."""

    def __init__(self, port):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.bind(f"tcp://127.0.0.1:{port or '*'}")
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.waiting = {}
        self.count = 0

    def pull(self, command):
        if not self.socket.poll(command["timeout_ms"]):
            return {"pull": None}
        identity, payload = self.socket.recv_multipart()
        self.count += 1
        self.waiting[self.count] = identity
        fields = msgpack.unpackb(payload, strict_map_key=False)
        return {"pull": self.count, "hex": payload.hex(), "fields": readable(fields)}

    def reply(self, command):
        identity = self.waiting[command["pull"]]
        self.socket.send_multipart([identity, msgpack.packb(command["fields"])])
        return {"ok": True}


def readable(value):
    """The same value without bytes, which JSON cannot hold: they become hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [readable(item) for item in value]
    if isinstance(value, dict):
        return {str(key): readable(item) for key, item in value.items()}
    return value


def main():
    options = arguments()
    router = Router(options.port)
    if options.bootstrap:
        register(options, router.address)
    say({"address": router.address})
    serve({"pull": router.pull, "reply": router.reply})


main()
