"""The one source file that a model's answer holds, or why there is none. Nothing is executed, and no text raises."""

from __future__ import annotations

import ast
import html
import re
import textwrap
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kerneleval.generators.common.prompts.facts import FORMS, PYTHON
from kerneleval.languages.common.python_module import imported
from kerneleval.records import Problem

_MOST_BYTES = 4 << 20
"""Largest candidate file (``languages/common/source.py``)."""

_LONGEST_MARKER = 400
"""Characters of the longest line that may open or close a fence."""

_TRIES = 4
"""How often a block that does not parse is tried with the text up to a later fence: docstrings may hold fences."""

_UNREAD = 16
"""Blocks for which that is done."""

_DEPTH = 3
"""Fences within fences that are looked into."""

_NAMES = {language: form.called for language, form in FORMS.items()}
_NAMES |= {"triton": "Triton", "torch": "PyTorch", "numba": "Numba"}

_PYTHON = frozenset({"python", "py", "python3", "py3", "ipython", "triton", "numba", "torch", "pytorch"})
_NATIVE = frozenset(
    (
        *("c", "c++", "cpp", "cxx", "cc", "cuda", "cu", "cuh", "hip", "h", "hpp", "cuda-cpp", "cuda_cpp", "cuda-c++"),
        *("opencl", "opencl-c", "opencl_c", "openclc", "ocl", "cl", "clc", "metal", "msl", "metal-cpp"),
    )
)
_DOCUMENT = frozenset({"markdown", "md", "mdx"})
_OTHER = frozenset(
    (
        *("bash", "sh", "shell", "zsh", "console", "terminal", "json", "jsonl", "yaml", "yml", "toml", "ini", "xml"),
        *("css", "js", "javascript", "ts", "typescript", "java", "rust", "go", "sql", "make", "makefile", "cmake"),
        *("dockerfile", "csv", "ptx", "asm", "sass", "mermaid", "log", "output", "latex", "tex", "diff", "patch"),
        "math",
    )
)

_MARKER = re.compile(
    r"(?P<before>[ \t]*(?:>[ \t]?)*(?:(?:[-*+]|[0-9]{1,3}[.)])[ \t]+)?)(?P<fence>`{3,}+|~{3,}+)(?P<info>[^`]*)"
)
_IN_PROSE = re.compile(r"[^`~]*[^`~ \t][ \t]*(?P<fence>`{3,}+|~{3,}+)(?P<info>[\w+#.-]+)[ \t]*")
_AT_END = re.compile(r"(?P<code>[^`~]*[^`~\s])[ \t]*(?P<fence>`{3,}+|~{3,}+)[ \t]*")
_TAG = re.compile(r"\{?\s*\.?([\w+#-]*).*", re.DOTALL)
_QUOTE = re.compile(r"[ \t]*(?:>[ \t]?)+")

_OPEN = re.compile(r"^[ \t]*(?:<(think|thinking|thought|reasoning|scratchpad)>|\[THINK\]|◁think▷)", re.I | re.M)
_CLOSE = re.compile(r"</(?:think|thinking|thought|reasoning|scratchpad)>|\[/THINK\]|◁/think▷", re.I)

_ESCAPED = re.compile(r"&(?:lt|gt|amp|quot|apos|#39|#x27|#34);")
_PRE = re.compile(r"<pre\b[^>]{0,200}>\s{0,20}(?:<code\b(?P<about>[^>]{0,200})>)?", re.I)
_CLASS = re.compile(r"lang(?:uage)?-([\w+#-]{1,30})")

_REFUSAL = re.compile(
    r"\b(?:I|we)(?:['’]m| am| are)? (?:can ?not|can['’]t|could not|couldn['’]t|won['’]t|will not|unable to|not able to|"
    r"must decline|have to decline|decline to|do not feel comfortable|not comfortable)\b"
    r"|\bI(?:['’]m| am) (?:very |really )?sorry\b|\b(?:as an? (?:AI|language model))\b"
    r"|\b(?:against|violates?) (?:my|our|the) (?:guidelines|policy|policies)\b",
    re.I,
)
_DIFF = re.compile(r"^(?:@@ -[0-9]+(?:,[0-9]+)? \+[0-9]+|diff --git |--- a/|\+\+\+ b/)", re.M)
_BEGINS = re.compile(
    r"^(?:import |from [\w.]+ import|#include\b|#pragma\b|//|/\*|@|def |class |extern |template|(?:__)?kernel void\b|"
    r"\"\"\")",
    re.M,
)


@dataclass(frozen=True, kw_only=True)
class _Block:
    """One fenced block."""

    tag: str
    """First word behind the fence, in lower case."""
    lines: Sequence[str]
    """Its lines, without the indentation of the fence."""
    closed: bool
    """Whether a fence ends it; else the text, or another block's beginning, does."""
    last: bool = False
    begin: int = 0
    """Index of its first line in the text, and..."""
    end: int = 0
    """... that behind its last."""
    escaped: bool = False


def extract(text: str, *, language: str, finished: bool) -> tuple[str, Problem, str]:
    """The candidate in an answer.

    Of several blocks the last one counts that is in the language, parses, defines an entry point and uses what the
    language is named after; where none does, the one that comes nearest. ``docs/prompts.md`` has the rules.
    ``finished``: whether the model ended by itself, and not at a limit.

    Returns:
        (source, problem, message): the file's text, which ends in a line end, and two empty texts; or an empty text,
        one of ``no_code``, ``refused`` and ``truncated``, and one sentence.
    """
    text = _plain(text)
    said = without_reasoning(text)
    if not said.strip():
        if text.strip() and not finished:
            return "", "truncated", "The answer ends within its reasoning."
        return "", "no_code", "The answer is empty." if not text.strip() else "The answer holds reasoning alone."
    lines = said.split("\n")
    blocks = list(_blocks(lines, 0)) or list(_html(said))
    source, cut, found = _chosen(blocks, lines, language, finished)
    if not source and not cut and found != "in another language":
        source, cut = _unfenced(said, language, finished) if not blocks else ("", False)
    if source and len(source.encode()) > _MOST_BYTES:
        return "", "no_code", f"The source takes more than {_MOST_BYTES >> 20} MiB."
    if source:
        return source, "", ""
    return _reason(said, blocks, language, finished, cut, found)


def without_reasoning(text: str) -> str:
    """The text behind a model's reasoning, where that stands in tags; an opening tag at the start may be missing.

    Reasoning that never ends takes all that follows it.
    """
    kept, at = [], 0
    opening, closing = _OPEN.search(text), _CLOSE.search(text)
    if closing and (opening is None or closing.start() < opening.start()):
        line = text[text.rfind("\n", 0, closing.start()) + 1 : closing.start()]
        if not line.strip() or "```" not in text[: closing.start()]:  # else it may stand in code
            at = closing.end()
    while (opening := _OPEN.search(text, at)) is not None:
        if (text.count("\n```", at, opening.start()) + text.startswith("```", at)) % 2 == 1:
            break  # a fence is open there: code may hold such a tag
        kept.append(text[at : opening.start()])
        closing = _CLOSE.search(text, opening.end())
        if closing is None:
            return "".join(kept)
        at = closing.end()
    return "".join([*kept, text[at:]])


def _plain(text: str) -> str:
    """One kind of line end, no control characters, nothing that cannot be written as UTF-8."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    text = re.sub("\x1b\\[[0-9;]{0,20}[A-Za-z]", "", text)  # colours of a terminal
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\u200b\u2060]", "", text)


def _blocks(lines: Sequence[str], depth: int) -> Iterator[_Block]:
    """The fenced blocks in order; of those that are documents or plain text, the blocks in them first."""
    for block in _fences(lines):
        if depth < _DEPTH and block.tag not in _PYTHON | _NATIVE | (_OTHER - _DOCUMENT):
            for inner in _blocks(block.lines, depth + 1):
                # places are in the block's own lines: nothing is looked for behind its end
                yield replace(inner, begin=-1, end=-1, last=inner.last and block.last)
        yield block


def _fences(lines: Sequence[str]) -> Iterator[_Block]:
    fence, tag, strip, quoted, begin = "", "", 0, False, 0
    body: list[str] = []
    for number, line in enumerate(lines):
        marker = _marker(line, fence)
        if marker is None:
            if fence:
                body.append(_unindented(line, strip, quoted))
            continue
        before, found, info = marker
        if fence and not info:
            if before.strip() and not before.strip(" \t>-*+"):
                before = ""
            elif before.strip():
                body.append(_unindented(before, strip, quoted))
            yield _Block(tag=tag, lines=body, closed=True, begin=begin, end=number)
            fence, body = "", []
            continue
        if fence:
            yield _Block(tag=tag, lines=body, closed=False, begin=begin, end=number)
        fence, tag, begin, body = found, _TAG.sub(r"\1", info, count=1).lower(), number + 1, []
        quoted = ">" in before
        strip = len(before) if not before.strip(" \t-*+0123456789.)") else 0
    if fence:
        yield _Block(tag=tag, lines=body, closed=False, last=True, begin=begin, end=len(lines))


def _marker(line: str, fence: str) -> tuple[str, str, str] | None:
    """(what stands before, fence, info) of a line that opens or closes a block; ``fence``: what is open."""
    if len(line) > _LONGEST_MARKER or ("```" not in line and "~~~" not in line):
        return None
    match = _MARKER.fullmatch(line)
    if match:
        before, found, info = match["before"], match["fence"], match["info"].strip()
        if not fence:
            return before, found, info
        same = found[0] == fence[0] and len(found) >= len(fence)
        # in an open block a list marker before a bare fence is code, and so are words that are no tag
        return (before, found, info) if same and (not info or re.fullmatch(r"[\w+#.:/=-]+", info)) else None
    if not fence:
        match = _IN_PROSE.fullmatch(line)
        return ("", match["fence"], match["info"]) if match else None
    match = _AT_END.fullmatch(line)
    if match and match["fence"][0] == fence[0] and len(match["fence"]) >= len(fence):
        return match["code"], match["fence"], ""
    return None


def _unindented(line: str, strip: int, quoted: bool) -> str:
    if quoted and (match := _QUOTE.match(line)):
        line = line[match.end() :]
    width = len(line) - len(line.lstrip(" \t"))
    return line[min(strip, width) :]


def _html(text: str) -> Iterator[_Block]:
    """Blocks of ``<pre>``, in answers that are HTML."""
    at = 0
    while (opening := _PRE.search(text, at)) is not None:
        end = text.find("</pre>", opening.end())
        body = text[opening.end() : end if end >= 0 else len(text)].removesuffix("</code>")
        about = _CLASS.search(opening["about"] or "")
        tag = about[1].lower() if about else ""
        yield _Block(tag=tag, lines=body.split("\n"), closed=end >= 0, last=end < 0, begin=-1, end=-1, escaped=True)
        if end < 0:
            return
        at = end


def _chosen(blocks: Sequence[_Block], lines: Sequence[str], language: str, finished: bool) -> tuple[str, bool, str]:
    """(source, whether one is cut off, what was found where there is none)."""
    own = _PYTHON if language in PYTHON else _NATIVE
    best, cut, found = Reading(rank=NOTHING, source=""), False, ""
    unread = 0
    for block in reversed(blocks):
        if block.tag in _PYTHON | _NATIVE and block.tag not in own:
            found = found or "in another language"
            continue
        if block.tag in _OTHER | _DOCUMENT or _DIFF.search("\n".join(block.lines[:50])):
            continue
        one = _read(block, lines if unread < _UNREAD else (), language)
        unread += one.rank == CODE
        if block.last and one.rank > NOTHING and (not finished or one.rank < PARTS):
            cut = True
            continue
        if one.rank == NOTHING and one.foreign:
            found = "in another language"
        if one.rank > best.rank:
            best = one
        if best.rank == OWN:
            break
    # a first version may stand for a last one that is cut off, but not what may be the task's own reference
    if best.rank == NOTHING or (cut and best.rank < OWN):
        return "", cut, found
    return best.source, False, ""


def _read(block: _Block, lines: Sequence[str], language: str) -> Reading:
    body = "\n".join(block.lines)
    if block.escaped or _is_escaped(body):
        body = html.unescape(body)
    one = read(body, language)
    if one.rank == CODE and block.begin >= 0 and not block.last and re.search("\"\"\"|'''", body):
        tried = 0
        for number in range(block.end, min(len(lines), block.end + 400)):
            if lines[number].strip() in ("```", "~~~") and tried < _TRIES:
                tried += 1
                longer = read("\n".join(lines[block.begin : number]), language)
                if longer.rank >= ENTRY:
                    return longer
    return one


def _is_escaped(body: str) -> bool:
    """Whether code came with HTML's entities: some, and no sign that HTML would have replaced."""
    if not _ESCAPED.search(body) or "<" in body or ">" in body:
        return False
    return body.count("&") == len(re.findall(r"&(?:[a-z]{2,6}|#x?[0-9a-fA-F]{1,6});", body))


def _unfenced(text: str, language: str, finished: bool) -> tuple[str, bool]:
    """Source of an answer without fences: all from its first line of code on; paragraphs behind it may be prose."""
    match = _BEGINS.search(text)
    if match is None:
        return "", False
    code = text[match.start() :]
    if _is_escaped(code):
        code = html.unescape(code)
    whole = read(code, language)
    if whole.rank >= ENTRY:
        return (whole.source, False) if finished or whole.rank == OWN else ("", True)
    for _ in range(_TRIES):
        code, gap, behind = code.rstrip().rpartition("\n\n")
        if not gap or not re.match(r"[A-Z*#-][^(){};=]*(?:\s|$)", behind):
            break
        one = read(code, language)
        if one.rank >= ENTRY:
            return one.source, False
    begins_so = not text[: match.start()].strip()
    return "", whole.rank > NOTHING and (begins_so or not finished)


def _reason(
    text: str, blocks: Sequence[_Block], language: str, finished: bool, cut: bool, found: str
) -> tuple[str, Problem, str]:
    """Why there is no source."""
    if cut:
        return "", "truncated", "The code ends before it is complete."
    if any(block.tag in ("diff", "patch") for block in blocks) or _DIFF.search(text):
        return "", "no_code", "The answer holds a diff, not a whole file."
    if found:
        return "", "no_code", f"The answer holds code, but none in {_NAMES.get(language, language)}."
    if not blocks and _REFUSAL.search(text[:2000]):
        return "", "refused", "The model declined."
    if not finished:
        return "", "truncated", "The answer ends before any code."
    if blocks:
        return "", "no_code", f"No block of the answer defines anything in {_NAMES.get(language, language)}."
    return "", "no_code", "The answer holds no code."


NOTHING, CODE, PARTS, ENTRY, OWN = range(5)
"""Ranks: no code of the language; code that does not parse; that parses and defines something, but nothing that could
be called from outside; that does; and that uses what the language is named after."""

_MOST_PARSED = 1 << 19
"""Characters of the longest Python text that is parsed, which takes many times its size in memory; a longer one is
judged by its lines."""

_QUIET = threading.Lock()
"""Filters of warnings belong to the whole process."""

_LOOKS_PYTHON = re.compile(r"^[ \t]*(?:def \w+ ?\(|class \w+|import \w|from [\w.]+ import\b|@[\w.]+)", re.M)
_DEFINES = re.compile(r"^(?:def|class) \w+", re.M)
_IMPORTS = {name: re.compile(rf"^[ \t]*(?:import|from) {name}\b", re.M) for name in PYTHON}

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*+|/\*(?:.*?\*/|.*+))"""
    r"""|(?P<raw>\bR"(?P<mark>[^()\\\s"]{0,16})\((?:.*?\)(?P=mark)"|.*+))"""
    r"""|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|(?P<bracket>[{}()])""",
    re.S,
)
_LOOKS_NATIVE = re.compile(
    r"^[ \t]*#[ \t]*(?:include|define|pragma)\b|\bextern[ \t]+\"C\"|__global__|^[^\n]*[;{][ \t]*$", re.M
)
_EXPORTS = re.compile(r"\bextern\s+\"C\"")
_KERNEL = re.compile(r"\b__global__\b|<<<")
_FUNCTION = re.compile(r"\)\s*(?:const\s*)?\{")
_SHADERS = ("opencl", "metal")
"""Languages of kernels without host code; lines in a source's header say how they are launched."""
_SHADER = re.compile(r"\b(?:__)?kernel\b|\[\[\s*kernel\s*\]\]")
_LAUNCH = re.compile(r"^[ \t]*(?://|#)[ \t]*kerneleval-launch[ \t]*:", re.M)
_OWN_WORDS = {
    "opencl": re.compile(r"\bget_(?:global|local|group)_(?:id|size)\b|\b(?:__)?global\s+(?:const\s+)?\w+\s*\*"),
    "metal": re.compile(
        r"\bmetal_stdlib\b|\[\[\s{0,8}(?:thread|simdgroup|grid)\w{1,60}\s{0,8}\]\]|\bdevice\s+(?:const\s+)?\w+\s*\*"
    ),
}
"""What distinguishes their sources."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A text as code."""

    rank: int
    source: str
    """The text as a file: its common indentation taken off, ending in one line end."""
    foreign: bool = False


def read(text: str, language: str) -> Reading:
    """How far a text is a candidate in a language. Takes time in proportion to its length; raises nothing."""
    source = text.strip("\n").rstrip() + "\n"
    if not source.strip():
        return Reading(rank=NOTHING, source="")
    return _python(source, language) if language in PYTHON else _native(source, language)


def _python(source: str, language: str) -> Reading:
    if len(source) > _MOST_PARSED:
        rank = CODE
        if _DEFINES.search(source):
            rank = OWN if _IMPORTS[language].search(source) else ENTRY
        return Reading(rank=rank if _LOOKS_PYTHON.search(source) else NOTHING, source=source)
    tree = _parsed(source)
    if tree is None and source[:1] in " \t":
        source = textwrap.dedent(source)
        tree = _parsed(source)
    if tree is None and "\xa0" in source:
        source = source.replace("\xa0", " ")  # as copied from web pages
        tree = _parsed(source)
    if tree is None:
        foreign = bool(_EXPORTS.search(source) or _KERNEL.search(source) or "#include" in source)
        looks = bool(_LOOKS_PYTHON.search(source)) and not foreign
        return Reading(rank=CODE if looks else NOTHING, source=source, foreign=foreign)
    statements = list(_top_level(tree))
    defined = [s for s in statements if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    if not defined:
        return Reading(rank=NOTHING, source=source)
    if not any(_is_entry(s) for s in statements):
        return Reading(rank=PARTS, source=source)
    return Reading(rank=OWN if language in imported(tree) else ENTRY, source=source)


def _parsed(source: str) -> ast.Module | None:
    try:
        with _QUIET, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements of the module, those under conditions too."""
    waiting: list[ast.stmt] = list(tree.body)
    for statement in waiting:
        yield statement
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            waiting += statement.body
            waiting += getattr(statement, "orelse", [])
            for handler in getattr(statement, "handlers", []):
                waiting += handler.body


def _is_entry(statement: ast.stmt) -> bool:
    """Whether it defines what may be called from outside: no Triton kernel, no class that is no module."""
    if isinstance(statement, ast.ClassDef):
        return statement.name in ("ModelNew", "Model")
    if isinstance(statement, ast.FunctionDef):
        return not any(_decorator(d) in ("triton.jit", "triton.autotune", "jit") for d in statement.decorator_list)
    if isinstance(statement, ast.Assign):  # softmax = Softmax.apply, softmax = torch.compile(plain)
        apply = isinstance(statement.value, ast.Attribute) and statement.value.attr == "apply"
        return apply or isinstance(statement.value, ast.Lambda) or _decorator(statement.value) == "torch.compile"
    return False


def _decorator(node: ast.expr) -> str:
    """``triton.jit`` of a decorator, with or without arguments."""
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _native(source: str, language: str) -> Reading:
    bare, balanced = _without_comments(source)
    is_python = _LOOKS_PYTHON.search(source) and "#include" not in bare.partition("def ")[0]
    if is_python and (len(source) > _MOST_PARSED or _parsed(source) is not None):
        return Reading(rank=NOTHING, source=source, foreign=True)
    if not _LOOKS_NATIVE.search(source):
        return Reading(rank=NOTHING, source=source)
    kernel, exported = bool(_KERNEL.search(bare)), bool(_EXPORTS.search(bare))
    shaders = [name for name in _SHADERS if _SHADER.search(bare) and _OWN_WORDS[name].search(bare)]
    if language in _SHADERS:
        return _shader(source, bare, balanced, language, foreign=bool(kernel or exported or shaders))
    if (language == "cpp" and kernel) or (shaders and not kernel and not exported):
        return Reading(rank=NOTHING, source=source, foreign=True)
    if not balanced:
        return Reading(rank=CODE, source=source)
    if not exported:
        return Reading(rank=PARTS if kernel or _FUNCTION.search(bare) else NOTHING, source=source)
    foreign = language == "hip" and "cuda_runtime" in bare
    own = language == "cpp" or (kernel and not foreign)
    return Reading(rank=OWN if own else ENTRY, source=source)


def _shader(source: str, bare: str, balanced: bool, language: str, foreign: bool) -> Reading:
    """Of kernels without host code. ``foreign``: the source has words of a language, be it this one."""
    own = bool(_SHADER.search(bare) and _OWN_WORDS[language].search(bare))
    if foreign and not own:
        return Reading(rank=NOTHING, source=source, foreign=True)
    if not balanced:
        return Reading(rank=CODE, source=source)
    if not _SHADER.search(bare):
        return Reading(rank=PARTS if _FUNCTION.search(bare) else NOTHING, source=source)
    return Reading(rank=OWN if own and _LAUNCH.search(source) else ENTRY, source=source)


def _without_comments(source: str) -> tuple[str, bool]:
    """The source with its comments left out, and whether braces and parentheses outside of strings are balanced."""
    kept, at, depth, lowest = [], 0, 0, 0
    for token in _TOKEN.finditer(source):
        if token["comment"]:
            kept.append(source[at : token.start()])
            at = token.end()
        elif token["bracket"]:
            depth += 1 if token["bracket"] in "{(" else -1
            lowest = min(lowest, depth)
    kept.append(source[at:])
    return " ".join(kept), depth == 0 and lowest == 0
