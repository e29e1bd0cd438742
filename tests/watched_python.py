"""What Python runs, fetches or unpickles while a file is read: its own audit events tell."""

import contextlib
import os
import sys

MARK = "a_mark_that_only_hostile_files_hold"
PAYLOAD = f"MARK = {MARK!r}\nfrom transformers import CLIPTokenizer as Evil\n"
FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile")
NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.", "http.client.", "ftplib.")


class Evil:
    """Unpickled, it would run a command."""

    def __reduce__(self):
        return os.system, (f"true {MARK}",)


class Watch:
    """An audit hook: Python keeps it for good, so it can be switched off."""

    def __init__(self):
        self.folder = None
        self.seen = []
        sys.addaudithook(self)

    def __call__(self, event, args):
        if self.folder is None:
            return
        text = None
        if event.startswith((*FORBIDDEN, *NETWORK)) or event == "pickle.find_class":
            text = str(args)
        elif event == "exec" and (self._ours(args[0].co_filename) or MARK in args[0].co_consts):
            text = args[0].co_filename
        elif event == "compile" and (self._ours(args[1]) or self._marked(args[0])):
            text = str(args[1])
        elif event in ("import", "ctypes.dlopen") and self._ours(args[1] if event == "import" else args[0]):
            text = str(args[0])
        elif event == "marshal.loads" and self._marked(args[0]):
            text = "bytes"
        if text is not None:
            self.seen.append(f"{event}: {text[:200]}")
            raise RuntimeError(f"{event} while a file is read")

    def _ours(self, name):
        name = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""
        return bool(name) and os.path.abspath(name).startswith(self.folder)

    @staticmethod
    def _marked(source):
        return (MARK if isinstance(source, str) else MARK.encode()) in source if source else False

    @contextlib.contextmanager
    def on(self, folder):
        """Watch what happens while files of a folder are read; afterwards, nothing must have been seen."""
        self.folder, self.seen = str(folder), []
        try:
            yield
        finally:
            self.folder = None
        assert not self.seen
