"""Just enough C++ reading for tidy.py: comments and literals blanked, includes, function bodies."""
import re

_TOKEN = re.compile(
    r'//(?:\\\n|[^\n])*'                                  # line comment, with its continuations
    r'|/\*.*?\*/'                                         # block comment
    r'|(?<!\w)(?:u8|[uUL])?R"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'                               # string
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",              # character, but not a digit separator
    re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
_CONTROL = re.compile(r'^\s*(?:else\s+)?(?:if|for|while|switch|catch|do|else|try)\b')
_SCOPE = re.compile(r'\b(?:namespace|class|struct|union|enum|concept)\b|\bextern\s*$')
_BODY_FOLLOWS = re.compile(
    r'\)\s*(?:(?:const|noexcept|override|final|mutable|&|&&|requires\b.*|->\s*[^;{}]+|TP2_\w+)'
    r'\s*)*$',
    re.DOTALL)
_INITIALIZERS = re.compile(r'\)\s*:\s*[^:].*\)\s*$', re.DOTALL)


def _blank(match):
    return re.sub(r'[^\n]', ' ', match.group(0))


def without_comments_and_literals(text):
    """The same text, line for line and column for column, with comments and literals blanked."""
    return _TOKEN.sub(_blank, text)


def includes(text):
    """(line number, '<' or '"', path) of every include that is not inside a comment."""
    code = without_comments_and_literals(text).splitlines()
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _INCLUDE.match(line)
        if match and code[number - 1].lstrip().startswith('#'):
            found.append((number, match.group(1), match.group(2)))
    return found


def _without_directives(code):
    """Blanks preprocessor lines and their continuations: a macro body is not a function."""
    return re.sub(r'^[ \t]*#(?:\\\n|[^\n])*', _blank, code, flags=re.MULTILINE)


def _is_function_head(head, after_brace):
    """Whether the text before an opening brace ends a function's signature."""
    text = head.strip()
    if not text:
        return after_brace  # the body behind a constructor's braced member initializer
    if _CONTROL.match(text) or text.endswith('='):
        return False
    if _SCOPE.search(re.sub(r'\([^()]*\)|<[^<>]*>', '', text)) and not text.endswith(')'):
        return False
    return bool(_BODY_FOLLOWS.search(text) or _INITIALIZERS.search(text))


def functions(text):
    """(line of the opening brace, of the closing one) of every outermost function; a heuristic."""
    code = _without_directives(without_comments_and_literals(text))
    found, depth, body_depth, body_line = [], 0, None, 0
    head_start, after_brace, line = 0, False, 1
    for offset, char in enumerate(code):
        if char == '\n':
            line += 1
        elif char == '{':
            if body_depth is None and _is_function_head(code[head_start:offset], after_brace):
                body_depth, body_line = depth, line
            depth, head_start, after_brace = depth + 1, offset + 1, False
        elif char == '}':
            depth -= 1
            if body_depth is not None and depth == body_depth:
                found.append((body_line, line))
                body_depth = None
            head_start, after_brace = offset + 1, True
        elif char == ';':
            head_start, after_brace = offset + 1, False
    return found
