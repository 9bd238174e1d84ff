#!/usr/bin/env python3
"""Style and layering rules that a machine can check; the rest is in CONTRIBUTING.md.

usage: tidy.py [--root DIR]     checks the tree; prints `path:line: rule: message`; exit 1 if any
       tidy.py --self-test      plants violations of every rule in scratch trees; all must be caught
       tidy.py --list           rules with their reasons

A rule is a generator of (path, line, message) over a Tree; the violations that prove it stand
beside it.
"""
import os
import re
import sys
import tempfile

import tidy_cpp
from tidy_core import CPP, HEADERS, RULES, Tree, outside, pattern_rule, rule
import tidy_layers  # noqa: F401  (registers its rules)

# (rule, file) -> why that file may. An entry that excuses nothing is itself a finding.
EXCEPTIONS = {
    ('libm', 'libcore/math/rope.h'): 'a float64 power rounded to fp32 on the host',
    ('last-error', 'tests/collectives/pair_gpu_test.cc'): 'takes back the error that it planted',
    ('random', 'tests/collectives/model/model_sys.h'): "the model checker's choice, which it replays",
}


# ---- code ----------------------------------------------------------------------------------------

pattern_rule('getenv', 'the environment is read in libcore/config/env.cc only',
             r'\b(secure_)?getenv\b', outside('libcore/config/env.cc', 'tests/'),
             ('libcore/base/a.cc', 'auto a = std::getenv("A");\n'))
pattern_rule('mutex', 'the thread sanitizer cannot see into absl::Mutex; use std::mutex',
             r'\babsl::(Mutex|MutexLock|CondVar)\b', outside(),
             ('libcore/base/a.cc', 'absl::Mutex m;\n'))
pattern_rule('views', 'clang 14 cannot compile them with libstdc++ 12',
             r'\bstd::(ranges::)?views?::', outside(),
             ('libcore/base/a.cc', 'auto a = std::views::all(b);\n'))
pattern_rule('using-namespace', 'names must say where they come from', r'\busing\s+namespace\b',
             outside(), ('tests/a_test.cc', 'using namespace tp2;\n'))
pattern_rule('print', 'results, tables and errors leave through libcore/report',
             r'\b(v?(f|s|sn|d)?printf|f?puts|putchar|perror)\s*\(',
             outside('libcore/report/', 'libcore/base/check.h', 'tests/'),
             ('cmd/a/run.cc', 'void F() { std::fprintf(stderr, "a"); }\n'))
pattern_rule('stream', 'the library hands text to its caller; tools own the streams',
             r'\bstd::(cout|cerr|clog)\b', outside('libcore/report/', 'cmd/', 'tests/'),
             ('libcore/base/a.cc', 'void F() { std::cout << 1; }\n'))
pattern_rule('last-error', 'it clears an error that another check still needs to see; '
             'only the peer-access check may', r'\bcudaGetLastError\b',
             outside('libcore/device/peer.cc'),
             ('libcore/device/a.cc', 'auto e = cudaGetLastError();\n'))
pattern_rule('name', 'say what is measured: count, bytes, rows, ...; no negated booleans',
             r'(?:\b(?:auto|int|long|unsigned|ssize_t|off_t|size_t|u?int\d+_t)\s*[&*]?\s+[&*]?'
             r'(?:size|len)\b(?!\s*\()|\bbool\s+(?:no|not)_\w+)', outside(),
             ('libcore/base/a.cc', 'void F(size_t len);\n'))
pattern_rule('random', 'its values differ between libraries or runs; use libcore/base/rng.h',
             r'\bstd::(random_device|mt19937\w*|\w+_distribution)\b|\b(s?rand|drand48)\s*\(',
             outside(), ('tests/a_test.cc', 'std::mt19937 g(1);\n'))
pattern_rule('libm', 'its last bit differs between C libraries; libcore/math has fixed forms',
             r'(?<![\w.:>])(?:std::)?(exp|exp2|expm1|log|log2|log1p|pow|tanh|rsqrt)f?\s*\(',
             lambda p: p.startswith(('libcore/ops/', 'libcore/math/', 'libcore/drafter/')),
             ('libcore/ops/cpu/a.cc', 'float F(float x) { return std::exp(x); }\n'))
pattern_rule('device-trap', 'it destroys the context; device faults are bits of the error word',
             r'(?<!\w)(__trap|assert)\s*\(', lambda p: p.endswith(('.cu', '.cuh')),
             ('libcore/ops/cuda/a.cu', 'void F() { assert(1); }\n'))
pattern_rule('cudacc', 'the controller is one source for both op sets',
             r'\b__CUDACC__\b|\b__CUDA_ARCH__\b', lambda p: p.startswith('libcore/drafter/'),
             ('libcore/drafter/drafter-inl.h', '#ifdef __CUDACC__\n#endif\n'))


@rule('todo', 'a reminder without an issue number is forgotten',
      ('libcore/base/a.cc', '// TO' 'DO: later\n'), ('scripts/a.sh', '# FIX' 'ME(me): later\n'))
def check_todo(tree):
    pattern = re.compile(r'\b(TO' r'DO\b(?!\(#\d+\))|FIX' r'ME|HA' r'CK\b|X' r'XX\b)')
    for path in tree.plain():
        if path.endswith(('.md', '.json')):
            continue
        for number, line in tree.lines(path):
            match = pattern.search(line)
            if match:
                yield path, number, f'{match.group(1)} needs an issue number: TO' 'DO(#12)'


@rule('vocabulary', 'one word per thing, everywhere (CONTRIBUTING.md)',
      ('libcore/model/a.h', '// The pre' 'fill path.\n'),
      ('cmd/a/run.cc', 'int bi' 'gram_rank = 1;\n'))
def check_vocabulary(tree):
    words = {'pre' 'fill': 'context insert', 'bi' 'gram': 'Markov bias', 'specu' 'lator': 'drafter',
             'seed' ' token': 'anchor', 'draft' ' worker': 'drafter', 'main' ' model': 'target'}
    pattern = re.compile('|'.join(words).replace(' ', '[ _]'), re.IGNORECASE)
    for path in tree.cpp():
        for number, line in tree.lines(path):
            match = pattern.search(line)
            if match:
                better = words[match.group(0).lower().replace('_', ' ')]
                yield path, number, f'"{match.group(0)}" is called {better} here'


@rule('function-lines', 'a function over 70 lines has more than one job',
      ('libcore/base/a.cc', 'int F() {\n' + '  G();\n' * 70 + '}\n'))
def check_function_lines(tree):
    for path in tree.cpp(ends=('.cc', '.h')):
        for first, last in tidy_cpp.functions(tree.text(path)):
            if last - first + 1 > 70:
                yield path, first, f'function of {last - first + 1} lines, more than 70'


@rule('kernel-list', 'preload and --list-kernels read this list',
      ('libcore/ops/cuda/a.cu', '__global__ void LostKernel(int* a) {}\n'))
def check_kernel_list(tree):
    pattern = re.compile(r'__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+'
                         r'(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)')
    for path in tree.cpp('libcore/', ends=('.cu', '.cuh')):
        home = os.path.dirname(path) + '/kernel_list.inc'
        listed = set(re.findall(r'\w+', tree.text(home))) if home in tree.files else None
        code = tidy_cpp.without_comments_and_literals(tree.text(path))
        for match in pattern.finditer(code):
            number = code.count('\n', 0, match.start()) + 1
            if listed is not None and match.group(1) not in listed:
                yield path, number, f'kernel {match.group(1)} is not in {home}'
            if not match.group(1).endswith('Kernel'):
                yield path, number, f'kernel {match.group(1)}: names of kernels end in Kernel'


# ---- files ---------------------------------------------------------------------------------------

@rule('file-lines', 'a file over 500 lines (600 for CUDA) has more than one reason to change',
      ('libcore/base/a.cc', 'int a;\n' * 501), ('scripts/a.py', 'A = 1\n' * 501))
def check_file_lines(tree):
    for path in tree.plain():
        if path.endswith(CPP + ('.py', '.sh', '.cmake', 'CMakeLists.txt')):
            limit = 600 if path.endswith(('.cu', '.cuh')) else 500
            count = len(tree.text(path).splitlines())
            if count > limit:
                yield path, limit + 1, f'{count} lines, more than {limit}'


COLUMNS = {CPP + ('.sh',): 100, ('.py',): 120, ('.md', '.cmake', 'CMakeLists.txt'): 140}


@rule('columns', 'two files side by side fit a screen',
      ('libcore/base/a.cc', '// ' + 'a ' * 50 + '\n'), ('README.md', 'a ' * 71 + '\n'))
def check_columns(tree):
    for path in tree.plain():
        limits = [limit for ends, limit in COLUMNS.items() if path.endswith(ends)]
        if not limits:
            continue
        limit = limits[0]
        for number, line in tree.lines(path):
            # A table row or an address cannot be broken.
            if len(line) > limit and not (path.endswith('.md') and line.startswith('|')):
                yield path, number, f'{len(line)} columns, more than {limit}'


@rule('header', 'a header says what it owns and is included once',
      ('libcore/base/a.h', '// Owns a.\nint a;\n'), ('libcore/base/a.h', '#pragma once\n'))
def check_headers(tree):
    for path in tree.cpp(ends=HEADERS):
        text = tree.text(path)
        if not re.search(r'^#pragma once$', text, re.MULTILINE) and not path.endswith('-inl.h'):
            yield path, 1, 'no #pragma once'
        if not text.startswith('//'):
            yield path, 1, 'no prologue: start with two to six lines of comment on what it owns'


@rule('whitespace', 'diffs show changes only',
      ('libcore/base/a.cc', 'int a; \n'), ('scripts/a.sh', '\tfoo\n'), ('README.md', 'no end'))
def check_whitespace(tree):
    for path in tree.plain():
        for number, line in enumerate(tree.text(path).split('\n'), 1):
            if '\t' in line or line.endswith((' ', '\r')):
                yield path, number, 'tab, carriage return or trailing blank'
        if tree.text(path) and not tree.text(path).endswith('\n'):
            yield path, len(tree.text(path).splitlines()), 'no newline at the end'


@rule('machine-path', 'files must mean the same on every machine',
      ('README.md', 'see ' '/wo' 'rk/a\n'), ('tests/golden/a.json', '"/wo' 'rk/b"\n'))
def check_machine_paths(tree):
    pattern = re.compile(r'(?<![\w.*}-])/wo' 'rk/')
    for path in tree.files:
        for number, line in tree.lines(path):
            if pattern.search(line):
                yield path, number, 'a path of one machine'


@rule('reachable', 'a file that no CMakeLists.txt names is dead or untested',
      ('libcore/base/lost.cc', 'int a;\n'), ('libcore/lost/CMakeLists.txt', '# Lost.\n'),
      ('tests/lost.h', '// Lost.\n#pragma once\n'))
def check_reachable(tree):
    lists = {os.path.dirname(p): re.sub(r'#.*', '', tree.text(p)) for p in tree.files
             if os.path.basename(p) == 'CMakeLists.txt'}
    included = {target for path in tree.cpp()
                for _, _, target in tidy_cpp.includes(tree.text(path))}

    def named(path, is_folder=False):
        for folder, text in lists.items():
            if folder == '' or path.startswith(folder + '/'):
                relative = path[len(folder):].lstrip('/')
                stem = os.path.splitext(relative)[0]
                tokens = set(re.split(r'[\s()";]+', text))
                if relative in tokens or 'tp2_tool(' in text and \
                        re.fullmatch(r'(main|flags|run)\.(cc|h)', relative):
                    return True
                if not is_folder and re.search(r'\}\S*\.(cc|cu)\b', text) and stem in tokens:
                    return True  # foreach(name a b) ... ${name}.cc
        return False

    for path in tree.cpp('libcore/', 'cmd/', 'tests/'):
        # Template bodies and headers of tests and tools are found through what includes them.
        through_include = path in included and \
            (path.endswith(('-inl.h', '.cuh', '.inc')) or not path.startswith('libcore/'))
        if not named(path) and not through_include:
            yield path, 1, 'no CMakeLists.txt names it'
    for folder in lists:
        if folder and not named(folder, is_folder=True):
            yield f'{folder}/CMakeLists.txt', 1, 'no add_subdirectory leads here'


@rule('fast-math', 'it changes bits',
      ('libcore/CMakeLists.txt', 'add_compile_options(-ff' 'ast-math)\n'))
def check_fast_math(tree):
    pattern = re.compile(r'-ffast-math|-Ofast|use_fast_math|-funsafe-math|-ffp-contract=(on|fast)')
    for path in tree.files:
        if path.endswith(('.cmake', 'CMakeLists.txt', 'CMakePresets.json')):
            for number, line in tree.lines(path):
                if pattern.search(line):
                    yield path, number, 'options that let the compiler change results are banned'


@rule('shell', 'a script stops at its first failure',
      ('scripts/a.sh', '#!/usr/bin/env bash\necho a\n'), ('scripts/a.sh', 'set -euo pipefail\n'))
def check_shell(tree):
    for path in tree.files:
        if not path.endswith('.sh') and path != '.ci/run':
            continue
        text = tree.text(path)
        is_sourced = text.startswith('# Sourced by')
        if not is_sourced and not text.startswith('#!/usr/bin/env bash\n'):
            yield path, 1, 'start with #!/usr/bin/env bash'
        if not is_sourced and not re.search(r'^set -euo pipefail$', text, re.MULTILINE):
            yield path, 1, 'set -euo pipefail'


# ---- running -------------------------------------------------------------------------------------

def findings(tree):
    excused = set()
    for name, _, check, _ in RULES:
        for path, number, message in check(tree):
            if (name, path) in EXCEPTIONS:
                excused.add((name, path))
            else:
                yield name, f'{path}:{number}: {name}: {message}', path
    for name, path in set(EXCEPTIONS) - excused:
        if path in tree.files:
            yield 'exception', f'{path}:1: exception: no longer needed for rule {name}', path


def plant_tree(root, path, text):
    """A scratch tree with one file, and the kernel list that one rule waits for."""
    for name, content in ((path, text), ('libcore/ops/cuda/kernel_list.inc', '')):
        full = os.path.join(root, name)
        os.makedirs(os.path.dirname(full) or root, exist_ok=True)
        with open(full, 'w', encoding='utf-8') as file:
            file.write(content)
    return Tree(root)


# Headers that no rule may complain about: comments and literals are not code, a class is not a
# function, and 70 lines are allowed.
CLEAN = [
    '// Owns a.\n#pragma once\n/* getenv() */ const char* A() { return "printf("; }\n',
    '// Owns b.\n#pragma once\nconst int64_t kB = 1\'000\'000; // puts(\nauto b = R"x(rand())x";\n',
    '// Owns c.\n#pragma once\nclass C {\n' + '  int size() const;\n' * 80 + '};\n',
    '// Owns d.\n#pragma once\nD::D() : a_(1), b_{2} {\n' + '  F();\n' * 68 + '}\n',
    '// Owns e.\n#pragma once\nconst int kE[] = {\n' + '  1,\n' * 80 + '};\n',
]


def self_test():
    missed = planted = 0
    for name, _, _, plants in RULES:
        for path, text in plants:
            planted += 1
            with tempfile.TemporaryDirectory() as root:
                tree = plant_tree(root, path, text)
                caught = [found for found, _, where in findings(tree) if where == path]
            if name not in caught:
                missed += 1
                print(f'tidy.py: self-test: rule {name} missed its violation in {path}')
    for text in CLEAN:
        with tempfile.TemporaryDirectory() as root:
            for name, line, where in findings(plant_tree(root, 'libcore/base/a.h', text)):
                if where == 'libcore/base/a.h' and name != 'reachable':
                    missed += 1
                    print(f'tidy.py: self-test: false alarm: {line}')
    print(f'tidy.py: self-test: {planted} violations of {len(RULES)} rules, {missed} problems')
    return 1 if missed else 0


def main(arguments):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if arguments == ['--self-test']:
        return self_test()
    if arguments == ['--list']:
        for name, why, _, _ in RULES:
            print(f'{name:16} {why}')
        return 0
    if len(arguments) == 2 and arguments[0] == '--root':
        root = arguments[1]
    elif arguments:
        print(__doc__, file=sys.stderr)
        return 2
    tree = Tree(root)
    if not tree.files:
        print(f'tidy.py: error: no files under {root}; name the top of the tree', file=sys.stderr)
        return 2
    found = sorted(set(line for _, line, _ in findings(tree)))
    for line in found:
        print(line)
    print(f'tidy.py: {len(RULES)} rules over {len(tree.files)} files, {len(found)} findings')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
