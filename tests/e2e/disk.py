"""States of a disk after a loss of power, from the log that tests/stand/mock/disk.c writes.

A disk is files and folders by number, and a list of changes to them in the order in which they were made. A change is
durable once a sync of its file or folder that began after the change has ended. Any other change may be there or not.
So a state of the disk is a moment and the changes before it that reached the disk."""  # SPDX-License-Identifier: Apache-2.0
import bisect
import collections
import os

ROOT = 1
Event = collections.namedtuple("Event", "program pid what inode offset path to data")


def read_log(path):
    with open(path, "rb") as f:
        raw = f.read()
    events, at = [], 0
    while at < len(raw):
        end = raw.index(b"\n", at)
        program, pid, what, inode, offset, size, paths = raw[at:end].decode().split(" ", 6)
        first, _, second = paths.partition("\t")
        at = end + 1 + int(size)
        assert at <= len(raw), "the log is cut short"
        events.append(Event(program, int(pid), what, int(inode), int(offset), first, second, raw[end + 1:at]))
    return events


class Change:
    """A change of a file or folder. of: the file or folder that must be synced. A file changes by (kind, offset, data),
    a folder by names: {name: file or None}."""

    def __init__(self, at, of, kind, offset=0, data=b"", names=None, path=""):
        self.at, self.of, self.kind, self.offset, self.data, self.names, self.path = at, of, kind, offset, data, names, path
        self.durable = None  # the event with which it is

    def __repr__(self):
        return "%d %s %s" % (self.at, self.kind, self.path)


class Disk:
    """root: the watched folder. known: its content when the log began, which does not count. Names are in folders,
    {folder: {name: file}}; `folders` are those at the end."""

    def __init__(self, log, root, known):
        self.root, self.changes = os.path.realpath(root), []
        self.events = [e for e in read_log(log) if e.path not in {self.root + "/" + name for name in known}]
        self.folders, self.links, self.inodes, self.made, self.gone = {ROOT: {}}, {}, {os.stat(root).st_ino: ROOT}, ROOT, []
        begun, waiting = {}, collections.defaultdict(list)  # of a sync; changes that are not durable
        for at, e in enumerate(self.events):
            if e.what == "sync":
                begun[e.pid, e.inode] = len(self.changes)
            elif e.what == "synced":
                self.synced(at, self.file_of(e), begun[e.pid, e.inode], waiting)
            elif e.what != "say":
                change = getattr(self, "take_" + e.what)(at, e)
                self.changes.append(change)
                waiting[change.of].append((len(self.changes) - 1, change))
        self.moments = [c.at for c in self.changes]
        self.change_at = {c.at: c for c in self.changes}

    @staticmethod
    def synced(at, file, before, waiting):
        for number, change in waiting[file]:
            if number < before:
                change.durable = at
        waiting[file] = [w for w in waiting[file] if w[0] >= before]

    # ---- while the log is read ----

    def file_of(self, e):
        assert e.inode in self.inodes, "the log does not say how '%s' was made" % e.path
        return self.inodes[e.inode]

    def place(self, path):
        """(folder, name)"""
        words = os.path.relpath(os.path.normpath(path), self.root).split("/")
        folder = ROOT
        for word in words[:-1]:
            folder = self.folders[folder][word]
        return folder, words[-1]

    def make(self, at, e, kind):
        folder, name = self.place(e.path)
        self.made += 1
        self.inodes[e.inode] = self.folders[folder][name] = self.made
        if kind == "mkdir":
            self.folders[self.made] = {}
        return Change(at, folder, kind, names={name: self.made}, path=e.path)

    def take_create(self, at, e):
        return self.make(at, e, "create")

    def take_mkdir(self, at, e):
        return self.make(at, e, "mkdir")

    def take_link(self, at, e):
        made = self.make(at, e, "link")
        self.links[self.made] = e.data
        return made

    def take_remove(self, at, e):
        folder, name = self.place(e.path)
        if not name.endswith(".sock"):  # which open() does not make
            self.folders[folder].pop(name)
        return Change(at, folder, "remove", names={name: None}, path=e.path)

    def take_rename(self, at, e):
        (folder, old), (other, new) = self.place(e.path), self.place(e.to)
        assert folder == other, "a name goes from one folder to another: %s, %s" % (e.path, e.to)
        file = self.folders[folder].pop(old)
        self.folders[folder][new] = file
        return Change(at, folder, "rename", names={old: None, new: file}, path=e.to)

    def data(self, at, e, kind):
        return Change(at, self.file_of(e), kind, e.offset, e.data, path=e.path)

    def take_write(self, at, e):
        return self.data(at, e, "write")

    def take_truncate(self, at, e):
        return self.data(at, e, "truncate")

    def take_allocate(self, at, e):
        return self.data(at, e, "allocate")

    def take_whole(self, at, e):
        return self.data(at, e, "whole")

    # ---- states ----

    def before(self, moment):
        """Returns the changes made before the event of that number."""
        return self.changes[:bisect.bisect_left(self.moments, moment)]

    def pending(self, moment):
        """Returns the changes before the moment that are not durable."""
        return [c for c in self.before(moment) if c.durable is None or c.durable >= moment]

    def named_at(self, at):
        """Returns the file or folder that got its name with that event."""
        return [file for file in self.change_at[at].names.values() if file][0]

    def durable(self, moment):
        return [c for c in self.before(moment) if c.durable is not None and c.durable < moment]


class State:
    """The files and folders after these changes."""

    def __init__(self, disk, changes):
        self.folders, self.links = {folder: {} for folder in disk.folders}, disk.links
        self.files = collections.defaultdict(list)
        for c in changes:
            if c.names is None:
                self.files[c.of].append(c)
                continue
            for name, file in c.names.items():
                self.folders[c.of].pop(name, None)
                if file is not None:
                    self.folders[c.of][name] = file

    def find(self, path):
        """Returns the file or folder of that name, or None."""
        at = ROOT
        for word in path.split("/"):
            at = self.folders.get(at, {}).get(word)
        return at

    def bytes(self, file):
        """Returns the content of a file; empty if the file is None."""
        out = bytearray()
        for c in self.files[file] if file else []:
            if c.kind == "whole":
                out = bytearray(c.data)
                continue
            out.extend(b"\0" * (c.offset + len(c.data) - len(out)))
            if c.kind == "truncate":
                del out[c.offset:]
            out[c.offset:c.offset + len(c.data)] = c.data
        return bytes(out)

    def read(self, path):
        return self.bytes(self.find(path))

    def write(self, target, folder=ROOT, left_out=lambda name: False):
        """All of it below a folder that exists."""
        for name, file in self.folders[folder].items():
            path = os.path.join(target, name)
            if left_out(name):
                continue
            if file in self.folders:
                os.mkdir(path, 0o700)
                self.write(path, file, left_out)
            elif file in self.links:
                os.symlink(self.links[file], path)
            else:
                self.write_file(path, file)

    def write_file(self, path, file):
        with open(path, "wb", buffering=0) as f:
            for c in self.files[file]:
                if c.kind in ("truncate", "whole"):
                    f.truncate(c.offset)
                elif c.kind == "allocate":
                    f.truncate(max(c.offset, os.fstat(f.fileno()).st_size))
                if c.data:
                    f.seek(c.offset)
                    f.write(c.data)
        os.chmod(path, 0o600)
