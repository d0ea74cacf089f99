"""Records, the output of bench programs and peers: a line each, a name and then key=value words. Lines of any other
shape are for people."""  # SPDX-License-Identifier: Apache-2.0


class Malformed(Exception):
    pass


class Record:
    def __init__(self, line):
        name, *words = line.split()
        self.name, self.line = name, line.strip()
        self.values = dict(word.split("=", 1) for word in words)

    def word(self, key):
        if key not in self.values:
            raise Malformed("a record '%s' without '%s': %s" % (self.name, key, self.line))
        return self.values[key]

    def number(self, key):
        try:
            return float(self.word(key))
        except ValueError:
            raise Malformed("'%s' is no number: %s" % (key, self.line)) from None


def records(text, name):
    """All records of that name; at least one."""
    lines = [line.split() for line in text.splitlines()]
    found = [Record(" ".join(words)) for words in lines if words and words[0] == name and all("=" in w for w in words[1:])]
    if not found:
        raise Malformed("no record '%s' in: %s" % (name, text[:200].strip() or "no output"))
    return found


def record(text, name):
    """The only one."""
    found = records(text, name)
    if len(found) > 1:
        raise Malformed("%d records '%s' where one was expected" % (len(found), name))
    return found[0]
