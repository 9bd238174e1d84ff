"""Registration of the edge cases: rows as in README.md, or `-` for promises that no row states."""
import collections

# `name` is ROW.FUNCTION, as README.md lists it. A `timed` case judges moments and runs only where nothing else does.
Case = collections.namedtuple('Case', 'row name claim function timed')
CASES = []


def case(row, claim, timed=False, name=None):
    """Registers function(bench) as a test of a row; several functions may share one."""
    def register(function):
        CASES.append(Case(row, f'{row}.{name or function.__name__}', claim, function, timed))
        return function
    return register


def both_ways(row, claim):
    """The same test with the control group and without; function(bench, options)."""
    def register(function):
        name = function.__name__
        case(row, claim, name=name)(lambda bench: function(bench, ()))
        case(row, claim + ', also without a control group', name=f'{name}_without_cgroup')(
            lambda bench: function(bench, ('--cgroup', 'off')))
        return function
    return register
