"""A handler served on this machine."""

from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Thread


@contextmanager
def serving_on(handler, world=None):
    """The base URL, while it serves; the handler finds `world` at `self.server.world`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.world = world
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
