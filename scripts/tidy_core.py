"""What every rule of tidy.py stands on: the tree under review and the registration of rules."""
import os
import re
import subprocess

import tidy_cpp

RULES = []
CPP = ('.cc', '.h', '.cu', '.cuh', '.inc')
HEADERS = ('.h', '.cuh')
# Expected values, fuzz seeds and measured files keep the bytes that were recorded.
RECORDED = re.compile(r'^tests/(golden|baselines)/|^tests/.*/(corpus|golden)/')


class Tree:
    """The files under review: tracked ones and new ones that git does not ignore."""

    def __init__(self, root):
        self.root = root
        listed = subprocess.run(['git', '-C', root, 'ls-files', '-co', '--exclude-standard', '-z'],
                                capture_output=True, check=False)
        if listed.returncode == 0:
            names = [n for n in listed.stdout.decode().split('\0') if n]
        else:  # an exported copy without .git
            names = [os.path.relpath(os.path.join(folder, name), root)
                     for folder, _, files in os.walk(root) for name in files]
            names = [n for n in names if not n.startswith(('build/', '.git/'))
                     and '__pycache__' not in n]
        self.files = sorted(set(n for n in names if os.path.isfile(os.path.join(root, n))))
        self._text = {}

    def text(self, path):
        """The file's text, or '' for a binary file."""
        if path not in self._text:
            with open(os.path.join(self.root, path), 'rb') as file:
                raw = file.read()
            self._text[path] = '' if b'\0' in raw else raw.decode('utf-8', 'replace')
        return self._text[path]

    def lines(self, path):
        return enumerate(self.text(path).splitlines(), 1)

    def code_lines(self, path):
        return enumerate(tidy_cpp.without_comments_and_literals(self.text(path)).splitlines(), 1)

    def cpp(self, *folders, ends=CPP):
        return [f for f in self.files if f.endswith(ends) and not RECORDED.match(f)
                and (not folders or f.startswith(folders))]

    def plain(self):
        return [f for f in self.files if not RECORDED.match(f)]


def rule(name, why, *plants):
    """Registers a rule; `plants` are (path, text) that it must complain about, each on its own."""
    def register(function):
        RULES.append((name, why, function, plants))
        return function
    return register


def pattern_rule(name, why, pattern, where, plant):
    """Bans a pattern in code, comments and literals aside; where(path) selects the files."""
    compiled = re.compile(pattern)

    def check(tree):
        for path in filter(where, tree.cpp()):
            for number, line in tree.code_lines(path):
                match = compiled.search(line)
                if match:
                    yield path, number, f'`{match.group(0).strip()}`: {why}'
    RULES.append((name, why, check, (plant,)))


def outside(*prefixes):
    return lambda path: not path.startswith(prefixes)
