"""Anonymous memory with a fixed address, as transfer engines register it."""

import ctypes
import hashlib
import mmap


class Memory:
    """`size` bytes, zeroed; pages exist only once they are touched."""

    def __init__(self, size):
        self.size = size
        self._map = mmap.mmap(-1, size)
        self._view = (ctypes.c_char * size).from_buffer(self._map)
        self.address = ctypes.addressof(self._view)

    def _check(self, offset, length):
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ValueError(f"{offset}+{length} is outside the {self.size} bytes of this memory")

    def get(self, offset, length):
        """A copy of `length` bytes."""
        self._check(offset, length)
        return ctypes.string_at(self.address + offset, length)

    def put(self, offset, data):
        """Overwrites `len(data)` bytes."""
        self._check(offset, len(data))
        ctypes.memmove(self.address + offset, data, len(data))

    def fill(self, offset, length, byte):
        """Overwrites `length` bytes with one value."""
        self._check(offset, length)
        ctypes.memset(self.address + offset, byte, length)

    def operations(self):
        """Commands on this memory, for peer_lines.serve."""

        def get(command):
            return {"hex": self.get(command["offset"], command["len"]).hex()}

        def sha256(command):
            data = self.get(command["offset"], command["len"])
            return {"sha256": hashlib.sha256(data).hexdigest()}

        def count(command):
            data = self.get(command["offset"], command["len"])
            return {"counts": {str(b): data.count(bytes([b])) for b in set(data)}}

        def put(command):
            self.put(command["offset"], bytes.fromhex(command["hex"]))
            return {"ok": True}

        def fill(command):
            self.fill(command["offset"], command["len"], command["byte"])
            return {"ok": True}

        return {"get": get, "sha256": sha256, "count": count, "put": put, "fill": fill}
