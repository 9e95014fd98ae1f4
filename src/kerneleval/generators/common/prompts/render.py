"""Requests as messages: a template, filled with facts; earlier answers and what was said of them behind it."""

from __future__ import annotations

import functools
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.generators.common.prompts.extract import without_reasoning
from kerneleval.generators.common.prompts.facts import (
    NATIVE,
    PYTHON,
    clean,
    costed_shapes,
    device_facts,
    fenced,
    task_facts,
)
from kerneleval.records import EarlierRound, Request, UsageError, digest, near
from kerneleval.records.errors import optional

if TYPE_CHECKING:
    import jinja2

_PACKAGE = "kerneleval.generators.common.prompts"
_NAMED = re.compile(r"([a-z0-9_]+)\.v([0-9]+)\.md\.j2")
_HEADER = re.compile(r"\{#-?\s*kerneleval-template:\s*(\S{1,100})\s*-?#\}")
_FENCE = re.compile("`{3,}")
_FEEDBACK = "feedback"
_ROLES = ("system", "user", "assistant")

_TAGS = {"cuda": "cuda", "hip": "cpp", "cpp": "cpp", "opencl": "opencl", "metal": "metal"}
"""What the fence of a native language's source is tagged with; Python's ``python``."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What is sent to a model."""

    messages: tuple[tuple[str, str], ...]
    """(role, text), the role one of system, user, assistant; the last one is the user's."""
    hash: str
    """Of template, roles and texts: the same question has the same."""
    template: str
    """Name and version of the template: ``triton/v1``; of a user's own file what its header says, else its name."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """One built-in template."""

    name: str
    file: str
    language: str
    """Language of the candidates that it is for; empty: it is a turn of a refinement."""
    version: int
    """Raised whenever its text, or that of a part which it includes, changes."""


def _built_in() -> dict[str, Template]:
    found = []
    for entry in (resources.files(_PACKAGE) / "templates").iterdir():
        match = _NAMED.fullmatch(entry.name)
        if match and not match[1].startswith("part_"):
            name, version = match[1], int(match[2])
            language = "" if name == _FEEDBACK else name
            found.append(Template(name=f"{name}/v{version}", file=entry.name, language=language, version=version))
    return {template.name: template for template in sorted(found, key=lambda t: (t.language, t.version))}


TEMPLATES: Mapping[str, Template] = _built_in()
"""The built-in templates by name."""

_lock = threading.Lock()
"""Held while a template is read, compiled and filled: threads that ask at once would each compile it."""


def render(request: Request, *, language: str, examples: int = 0, template: str = "") -> Prompt:
    """The messages that ask a model for a candidate.

    Of an earlier round the answer's text, without its reasoning, becomes the model's message, and the feedback ours. At
    most so many worked examples are shown, none of the task itself. A template is the name of a built-in one
    (``triton/v1``), or the path of a file of one's own that ends in ``.j2``; empty: the language's newest.

    Raises UsageError for an unknown language or template, one of another language, a module problem in a language
    without modules, an argument that the language cannot take, a negative number of examples, or an error in the
    template, with its file and line.
    """
    languages = [one.language for one in TEMPLATES.values() if one.language]
    if language not in languages:
        raise UsageError(
            f"there is no prompt for language {language!r}; {near(language, languages)} (for device {request.device!r})"
        )
    if request.task.module and language in NATIVE:
        raise UsageError(
            f"task {request.task.name} is a module, and candidates for modules are Python files: ask for "
            f"{', '.join(PYTHON)}, not for {language}"
        )
    if examples < 0:
        raise UsageError(f"examples must be 0 or more, not {examples}")
    facts = _facts(request, language, examples)
    with _lock:
        name, source, environment = _template(template, language)
        messages = _messages(environment, source, facts)
        for number, turn in enumerate(request.history):
            messages.append(("assistant", _answer(turn, language)))
            messages += _feedback(environment, turn, number, facts)
    texts = tuple((role, clean(text).strip()) for role, text in messages)
    parts = [part for message in texts for part in message]
    return Prompt(messages=texts, hash=digest(name, *parts), template=name)


def _facts(request: Request, language: str, examples: int) -> dict[str, Any]:
    samples = costed_shapes(request.task, request.device)
    return {
        "language": language,
        "tag": _TAGS.get(language, "python"),
        "task": task_facts(request.task, language, samples),
        "device": device_facts(request, samples),
        "examples": _examples(language, request.task.name)[:examples],
        "round": request.round,
    }


def _examples(language: str, but: str) -> list[dict[str, str]]:
    """Worked examples: files ``<task>_in_<language>.<suffix>``, without the lines above their first empty one."""
    from kerneleval import tasks

    found = []
    for entry in sorted((resources.files(_PACKAGE) / "examples").iterdir(), key=lambda e: e.name):
        task, _, rest = entry.name.partition("_in_")
        if rest.partition(".")[0] == language and task != but:
            _, _, text = entry.read_text(encoding="utf-8").partition("\n\n")
            found.append({"task": task, "summary": tasks.find(task).summary, "source": text.strip("\n")})
    return found


def _answer(turn: EarlierRound, language: str) -> str:
    """What the model said in an earlier round, as it may be shown to it again."""
    said = without_reasoning(turn.answer.text).strip()
    if not said and turn.answer.candidate is not None:
        said = fenced(turn.answer.candidate.main, _TAGS.get(language, "python"))
    return said or "(no answer)"


def _template(asked: str, language: str) -> tuple[str, str, jinja2.Environment]:
    """(name, file name, environment) of the template to use."""
    if asked.endswith(".j2"):
        return _own(Path(asked))
    own = [one for one in TEMPLATES.values() if one.language == language]
    if not asked:
        return own[-1].name, own[-1].file, _environment()
    if asked not in TEMPLATES:
        hint = near(asked, [one.name for one in own])
        raise UsageError(f"no prompt template is called {asked!r}, nor does it end in .j2; {hint}")
    if TEMPLATES[asked].language != language:
        raise UsageError(f"the template {asked!r} is not for {language}; {near(asked, [one.name for one in own])}")
    return asked, TEMPLATES[asked].file, _environment()


def _own(path: Path) -> tuple[str, str, jinja2.Environment]:
    """A user's template; a file beside it stands in for the built-in one of its name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the prompt template cannot be read: {error}") from error
    header = _HEADER.match(text.lstrip("\ufeff \n"))
    name = header[1] if header else path.name.removesuffix(".j2").removesuffix(".md")
    return name, path.name, _make_environment(path.parent)


@functools.cache
def _environment() -> jinja2.Environment:
    return _make_environment(None)


def _make_environment(folder: Path | None) -> jinja2.Environment:
    """Plain text, nothing undefined, and no way from a template to Python's internals."""
    with optional("prompts need", "llm"):
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

    def read(name: str) -> tuple[str, str, Callable[[], bool]] | None:
        for place in ([folder / name] if folder is not None else []) + [resources.files(_PACKAGE) / "templates" / name]:
            if "/" not in name and place.is_file():
                return place.read_text(encoding="utf-8"), str(place), lambda: True
        return None

    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.FunctionLoader(read),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # it is no HTML: a fence must hold the source as it is
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fenced"] = fenced
    return environment


def _messages(environment: jinja2.Environment, file: str, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The messages that a template makes; what makes none is one of the user. Raises UsageError for an error in the
    template, text beside its messages, an unknown role, or a last message that is not the user's.
    """
    messages: list[tuple[str, str]] = []

    def message(role: str, caller: Callable[[], str]) -> str:
        if role not in _ROLES:
            raise ValueError(f"no message has the role {role!r}; {near(str(role), _ROLES)}")
        messages.append((role, _tidy(caller())))
        return ""

    try:
        rest = environment.get_template(file).render({**facts, "message": message}).strip()
    except Exception as error:  # a template's error: the message has its file and line
        raise UsageError(_where(error, file)) from error
    if not messages:
        messages = [("user", _tidy(rest))]
    elif rest:
        raise UsageError(f"{file}: the template has text outside of its messages: {rest[:80]!r}")
    if messages[-1][0] != "user" or not messages[-1][1]:
        raise UsageError(f"{file}: the last message of a template must be the user's, and not empty")
    return messages


def _tidy(text: str) -> str:
    """One empty line above headings and no more than one in a row, but for what stands in fences."""
    kept: list[str] = []
    fence = ""
    for line in text.strip().split("\n"):
        marker = _FENCE.match(line)
        if marker and not fence:
            fence = marker[0]
        elif marker and line.rstrip() == fence:
            fence = ""
        if not fence and line.startswith("# ") and kept and kept[-1].strip():
            kept.append("")
        if fence or line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    return "\n".join(kept)


def _feedback(
    environment: jinja2.Environment, turn: EarlierRound, number: int, facts: Mapping[str, Any]
) -> Iterable[tuple[str, str]]:
    newest = max((one for one in TEMPLATES.values() if not one.language), key=lambda one: one.version)
    said = clean(turn.feedback.strip() or turn.answer.message or "Nothing was said of it.")
    given = {**facts, "feedback": said, "problem": turn.answer.problem, "number": number}
    return _messages(environment, newest.file, given)


def _where(error: Exception, file: str) -> str:
    """``FILE:LINE: what is wrong``, for an error that a template raised."""
    import jinja2

    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.filename or file}:{error.lineno}: the prompt template is wrong: {error.message}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else file
    if isinstance(error, jinja2.TemplateNotFound):
        return f"{place}: there is no template {error.name!r}, neither beside it nor among the built-in ones"
    return f"{place}: the prompt template is wrong: {type(error).__name__}: {error}"
