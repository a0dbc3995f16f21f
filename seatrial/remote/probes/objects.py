"""Measure an object store through fsspec, together with other nodes, as requests on standard input
say.

    objects.py URL

Greeting, requests and answers are those of storage.py; object stores have no locks, and no streams
except those of checkpoints. All objects are under a separate prefix in URL, which is removed when
this process ends. It needs fsspec, which torch brings, and the package of the store, such as gcsfs.
"""

import hashlib
import os
import secrets
import time

import storage


def main():
    """Answer requests for the URL of the command line."""
    storage.serve(Objects)


class Objects(storage.Checkpoints):
    """The objects of this node. Each method answers one request."""

    def __init__(self, url):
        self.url = url
        self.folder = storage.PREFIX + secrets.token_hex(8)
        self.lacks = ""
        # Fork before fsspec starts threads, which a child would lose.
        self.alive = storage.clean_up_after(self.is_gone)
        try:
            self.store, self.root = opened(url)
            # A real object store does nothing here
            self.store.makedirs(f"{self.root}/{self.folder}", exist_ok=True)
        except ImportError:
            self.lacks = package_of(url)

    def greeting(self):
        """Return the first line out."""
        scheme = self.url.partition("://")[0]
        return {"folder": self.folder, "filesystem": scheme, "lacks": self.lacks}

    def is_gone(self):
        """Remove all objects of this node; return whether none are left."""
        try:
            store, root = opened(self.url)
            store.rm(f"{root}/{self.folder}", recursive=True)
        except (FileNotFoundError, ImportError):
            return True
        return False

    def leave(self, id=0):
        """Remove everything; no request is answered after this one."""
        self.is_gone()
        return {}

    def of(self, folder, name):
        """Return the path of an object of another node."""
        storage.check_folder(folder)
        return f"{self.root}/{folder}/{name}"

    def note(self, id):
        """Write an object for other nodes, with new content each time."""
        content = os.urandom(storage.NOTE_BYTES)
        self.store.pipe_file(self.of(self.folder, "note"), content)
        return {"digest": hashlib.sha256(content).hexdigest()}

    def look(self, id, folder, digest, limit_s):
        """Return the seconds until another node's note has the expected content; no seconds if it
        never has.
        """
        path = self.of(folder, "note")

        def read():
            self.store.invalidate_cache()
            return self.store.cat_file(path)

        return storage.awaited(read, digest, limit_s)

    def files(self, id, count):
        """Write, list, read and remove small objects, with the parallelism of fsspec."""
        folder = self.of(self.folder, "small")
        content = os.urandom(storage.SMALL_BYTES)
        paths = [f"{folder}/{number}" for number in range(count)]
        began = time.monotonic()
        self.store.makedirs(folder, exist_ok=True)
        self.store.pipe(dict.fromkeys(paths, content))
        self.store.invalidate_cache()
        listed = self.store.ls(folder, detail=False)
        wrong = "" if len(listed) == count else f"{len(listed)} of {count} objects are listed"
        for path, read in self.store.cat(paths).items():
            if read != content:
                wrong = f"small object {os.path.basename(path)} is not what was written"
        self.store.rm(paths)
        return {"seconds": time.monotonic() - began, "wrong": wrong}

    def write_shard(self, shard, size):
        """Write the object of a shard; return its bytes, and "" as there is no problem."""
        content = storage.content_of(shard)
        with self.store.open(self.of(self.folder, f"shard-{shard}"), "wb") as file:
            places = range(0, size, storage.BLOCK)
            return sum(file.write(place.to_bytes(8, "little") + content) for place in places), ""

    def read_shard(self, folder, shard, size):
        """Read the object of a shard; return its bytes, and what is wrong with it."""
        content = storage.content_of(shard)
        wrong = ""
        with self.store.open(self.of(folder, f"shard-{shard}"), "rb") as file:
            for place in range(0, size, storage.BLOCK):
                if file.read(storage.BLOCK) != place.to_bytes(8, "little") + content:
                    wrong = (
                        wrong or f"shard {shard}: the block at byte {place} is not what was written"
                    )
        return size, wrong


def opened(url):
    """Return the store, and the path in it."""
    import fsspec

    return fsspec.core.url_to_fs(url)


def package_of(url):
    """Return the package that fsspec needs for the URL."""
    try:
        from fsspec.registry import known_implementations
    except ImportError:
        return "fsspec"
    return known_implementations[url.partition("://")[0]]["class"].partition(".")[0]


if __name__ == "__main__":
    main()
