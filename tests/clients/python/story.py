"""What the Python programs share: where to connect, and how to say that a step went well."""

import os
import time

TUBE = os.environ["TUBE"]
WAIT_SECONDS_MAX = 10


def address(name):
    host, port = os.environ[name].rsplit(":", 1)
    return host, int(port)


WORKER = address("ADDR")
PRODUCER = address("PUT_ADDR")


def ok(step):
    print("ok", step, flush=True)


def expect(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def poll(look, wanted, what):
    """Looks until it sees what it wants; says at the end what it saw last."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        found = look()
        if found == wanted:
            return
        if time.monotonic() > until:
            raise AssertionError(f"{what}: still {found!r}, wanted {wanted!r}")
        time.sleep(0.02)
