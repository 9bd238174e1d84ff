"""The table of rows in README.md, held against the registered cases and against the codes that the tool really gave."""
import collections
import os
import re

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROW_COUNT = 54
# Codes that run-owned gives of its own accord; a command's own are others in the tests.
LOWEST_OWN = 123

# `exits`: codes as text, or "job's"; `tests`: names of cases, or Suite.Test of permit_test.cc.
Row = collections.namedtuple('Row', 'exits tests')


def read_table():
    """Row number as text -> Row."""
    table = {}
    with open(os.path.join(FOLDER, 'README.md')) as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip('|').split('|')]
            if len(cells) < 4 or not cells[0].isdigit():
                continue
            if cells[0] in table:
                raise ValueError(f'README.md has row {cells[0]} twice')
            table[cells[0]] = Row(re.findall(r"\d+|job's", cells[2]), re.findall(r'`([^`]+)`', cells[3]))
    return table


def unit_tests():
    with open(os.path.join(FOLDER, 'permit_test.cc')) as file:
        return {f'{suite}.{name}' for suite, name in re.findall(r'^TEST\((\w+), (\w+)\)', file.read(), re.MULTILINE)}


def complaints(table, cases):
    found = [f'README.md: row {row} is missing' for row in map(str, range(1, ROW_COUNT + 1)) if row not in table]
    found += [f'README.md: there is no row {row}' for row in table if int(row) > ROW_COUNT]
    registered = collections.defaultdict(set)
    for case in cases:
        registered[case.row].add(case.name)
    doubled = [name for name, count in collections.Counter(case.name for case in cases).items() if count > 1]
    found += [f'{name}: two cases have this name' for name in doubled]
    known_units = unit_tests()
    for row, entry in table.items():
        units = {name for name in entry.tests if name[0].isupper()}
        named = {f'{row}.{name}' for name in entry.tests if not name[0].isupper()}
        found += [f'row {row}: no test {name} in permit_test.cc' for name in sorted(units - known_units)]
        found += [f'row {row}: README.md names {name}, which is no case' for name in sorted(named - registered[row])]
        found += [f'row {row}: README.md does not name {name}' for name in sorted(registered[row] - named)]
        if not any(case.row == row and not case.timed for case in cases):
            found.append(f'row {row}: every case judges moments; one must not')
        if not entry.exits:
            found.append(f'row {row}: no exit code')
    return found


def unseen_exits(table, row, seen):
    """A line for every code of the row that no run of its cases has given."""
    if row not in table:
        return []
    has_own = any(code < LOWEST_OWN for code in seen)
    return [f"row {row}: expected an exit with {code}, got {sorted(seen)}" for code in table[row].exits
            if not (has_own if code == "job's" else int(code) in seen)]
