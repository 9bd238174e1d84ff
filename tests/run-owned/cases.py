"""Registration of the edge cases: one entry per row of the table in README.md."""
CASES = []


def case(row, claim):
    """Registers function(bench) as the test of a row; several functions may share one."""
    def register(function):
        CASES.append((row, claim, function))
        return function
    return register
