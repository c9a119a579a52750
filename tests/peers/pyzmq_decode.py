"""A stock D's control plane: a DEALER over libzmq that sends pulls as they are given.

usage: pyzmq_decode.py ADDRESS      (tcp://host:port, as the bootstrap server lists it)

First line: {"connected": ADDRESS}. Then answers commands (see peer_lines):
  send {hex}            sends one pull, {"ok": true}
  receive {timeout_ms}  the next reply, {"hex": "..."}; {"hex": null} when none came in time
  reconnect {}          closes the socket and opens another, as stock does for every pull
"""

import sys

import zmq

from peer_lines import say, serve


class Dealer:
    """One DEALER socket to one P."""

    def __init__(self, address):
        self.context = zmq.Context()
        self.address = address
        self.socket = None
        self.open()

    def open(self):
        """Connects anew; what the old connection still held is dropped."""
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(self.address)

    def send(self, command):
        self.socket.send(bytes.fromhex(command["hex"]))
        return {"ok": True}

    def receive(self, command):
        if not self.socket.poll(command["timeout_ms"]):
            return {"hex": None}
        return {"hex": self.socket.recv().hex()}

    def reconnect(self, _command):
        self.open()
        return {"ok": True}


def main():
    dealer = Dealer(sys.argv[1])
    say({"connected": dealer.address})
    serve({"send": dealer.send, "receive": dealer.receive, "reconnect": dealer.reconnect})


main()
