"""Settings of agents: what is wrong with them; and what agents tell of their usage."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.generators.agent.agents import agent, request

from kerneleval import generators
from kerneleval.generators.agent import from_settings
from kerneleval.generators.agent.running import PRICES, read_usage
from kerneleval.records import UsageError

GOOD = {"name": "mine", "command": ["agent", "{task}"]}
PLACE = "a.toml: [generator]"


def made(**table):
    return from_settings({**GOOD, **table}, PLACE)


def test_a_settings_file(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(
        '[generator]\nkind = "agent"\nname = "mine"\ncommand = ["my-agent", "-p"]\nsamples = 3\nrounds = 2\n'
    )
    found = generators.find(str(path))
    assert isinstance(found, generators.Asked)
    assert (found.name, found.samples, found.rounds, found.concurrency) == ("mine", 3, 2, 1)
    assert found.summary == "the command my-agent"
    assert (found.language("cpu"), found.language("cuda")) == ("numba", "triton")


def test_what_it_depends_on():
    same = made().identity
    assert made().identity == same == made(concurrency=7, usage="stdout").identity
    for table in (
        {"command": ["b"]},
        {"checks": 1},
        {"samples": 2},
        {"rounds": 2},
        {"language": "cpp"},
        {"max_seconds": 5},
        {"network": True},
        {"env": ["KEY"]},
        {"name": "b"},
    ):
        assert made(**table).identity != same, table


_BELOW = Path.home().resolve().is_relative_to(Path(tempfile.gettempdir()).resolve())
OF_TEMPORARY_FILES = "would give your home" if _BELOW else "would give all temporary files"


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"name": ""}, "name is missing"),
        ({"command": []}, "command is missing"),
        ({"command": "agent -p"}, "command must be a list of strings, not 'agent -p'"),
        ({"command": [1]}, "command must be a list of strings"),
        ({"command": ["a\0b"]}, "command must be a list of strings"),
        ({"command": ["", "a"]}, "command begins with an empty word"),
        ({"comand": ["a"]}, "comand is unknown; did you mean command"),
        ({"name": "a:b"}, "name 'a:b' must have neither colons"),
        ({"language": "tritn"}, "language 'tritn' has no prompt; did you mean triton"),
        ({"samples": 0}, "samples must be 1 or more, not 0"),
        ({"samples": True}, "samples must be a whole number, not True"),
        ({"rounds": 101}, "rounds must be 100 or less"),
        ({"concurrency": 0}, "concurrency must be 1 or more"),
        ({"checks": -1}, "checks must be 0 or more"),
        ({"checks": 2.5}, "checks must be a whole number"),
        ({"max_seconds": 0}, "max_seconds must be above 0"),
        ({"max_seconds": float("nan")}, "max_seconds must be finite"),
        ({"network": "yes"}, "network must be true or false, not 'yes'"),
        ({"gpu": 1}, "gpu must be true or false"),
        ({"env": ["KEY=secret"]}, "env 'KEY=secret' is no variable's name"),
        ({"candidate": "../c.py"}, r"candidate '\.\./c\.py' must be a plain file name"),
        ({"candidate": ".c.py"}, "must be a plain file name"),
        ({"candidate": "TASK.md"}, "none of TASK.md"),
        ({"usage": "/etc/passwd"}, "usage '/etc/passwd' must be a plain file name"),
        ({"usage": "a.py", "candidate": "a.py"}, "must be two files"),
        ({"reads": ["relative"]}, "reads 'relative' must be an absolute path"),
        ({"reads": ["/no/such/place"]}, "there is no such file or directory"),
        ({"reads": ["~no-such-user-xyz/a"]}, "can't be looked up"),
        ({"reads": ["/"]}, "reads '/' would give your home to the agent"),
        ({"writes": ["~"]}, "writes '~' would give your home"),
        ({"writes": [tempfile.gettempdir()]}, OF_TEMPORARY_FILES),
    ],
)
def test_what_is_wrong_is_named(table, told):
    with pytest.raises(UsageError, match=told) as caught:
        made(**table)
    assert str(caught.value).startswith(PLACE)


def test_a_link_gives_what_it_leads_to(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("/")
    with pytest.raises(UsageError, match="would give your home"):
        made(reads=[str(link)])
    other = tmp_path / "other"
    other.symlink_to("/usr/bin")
    assert made(reads=[str(other)]).settings.reads == (str(Path("/usr/bin").resolve()),)


# -- usage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (
            {
                "model": "m",
                "input_tokens": 10,
                "output_tokens": 5,
                "cached_tokens": 4,
                "reasoning_tokens": 3,
                "cost_usd": 0.5,
                "turns": 2,
            },
            {
                "model": "m",
                "tokens_in": 10,
                "tokens_out": 5,
                "tokens_cached": 4,
                "tokens_reasoning": 3,
                "money_usd": 0.5,
                "prices": PRICES,
                "turns": 2,
            },
        ),
        (
            # Claude Code's last line: what its cache read and wrote is counted beside the input.
            {
                "type": "result",
                "total_cost_usd": 0.25,
                "num_turns": 7,
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 100,
                    "cache_read_input_tokens": 1000,
                    "output_tokens": 50,
                },
                "modelUsage": {"claude-x": {"inputTokens": 10}},
            },
            {
                "model": "claude-x",
                "tokens_in": 1110,
                "tokens_out": 50,
                "tokens_cached": 1000,
                "money_usd": 0.25,
                "prices": PRICES,
                "turns": 7,
            },
        ),
        (
            {"type": "turn.completed", "usage": {"input_tokens": 20, "cached_input_tokens": 8, "output_tokens": 4}},
            {"tokens_in": 20, "tokens_out": 4, "tokens_cached": 8},
        ),
        (
            {
                "model": "o",
                "usage": {
                    "prompt_tokens": 20,
                    "completion_tokens": 9,
                    "prompt_tokens_details": {"cached_tokens": 5},
                    "completion_tokens_details": {"reasoning_tokens": 6},
                },
            },
            {"model": "o", "tokens_in": 20, "tokens_out": 9, "tokens_cached": 5, "tokens_reasoning": 6},
        ),
        ({"input_tokens": -1, "output_tokens": 5}, {"tokens_out": 5}),
        ({"input_tokens": 2.5, "output_tokens": True, "cost_usd": "3"}, {}),
        ({"input_tokens": 2, "cached_tokens": 3}, {"tokens_in": 2}),
        ({"cached_tokens": 3, "reasoning_tokens": 3}, {}),
        ({"input_tokens": 10**13, "output_tokens": 1.0}, {"tokens_out": 1}),
        ({"model": "m"}, {}),
        ({"model": ["m"], "turns": 1}, {"turns": 1}),
        ({"model": "a\x1b[31m", "turns": 1}, {"turns": 1}),
        ({"usage": "much"}, {}),
        ({}, {}),
    ],
)
def test_usage(told, wanted):
    assert read_usage(json.dumps(told)) == wanted
    assert read_usage("working ...\n{broken\n" + json.dumps(told) + "\nbye\n") == wanted
    assert read_usage("working ...\n" + json.dumps(told, indent=2)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "{" * 100_000,
        "\n{" * 10_000,
        "NaN",
        '{"cost_usd": NaN}',
        '{"cost_usd": 1e999}',
        "[1, 2]",
        '"x"',
        "null",
    ],
)
def test_what_is_no_usage(text):
    assert read_usage(text) == {}


def test_the_last_line_counts():
    lines = [{"turns": 1}, {"turns": 2}, {"other": 3}]
    assert read_usage("\n".join(map(json.dumps, lines))) == {"turns": 2}
    assert read_usage(json.dumps(lines)) == {"turns": 2}


WRITES = "open('candidate.py', 'w').write('import numba\\n')\n"


def test_usage_reaches_the_origin(tmp_path):
    text = WRITES + 'open(\'usage.json\', \'w\').write(\'{"model": "m", "input_tokens": 7, "cost_usd": 0.5}\')'
    origin = agent(tmp_path, text, usage="usage.json").ask(request()).origin
    assert (origin.model, origin.tokens_in, origin.money_usd, origin.prices) == ("m", 7, 0.5, PRICES)
    origin = agent(tmp_path, text).ask(request()).origin
    assert (origin.model, origin.tokens_in, origin.money_usd, origin.prices) == ("", 0, 0.0, "")


@pytest.mark.parametrize(
    "text",
    [
        "import os; os.symlink('reference.py', 'usage.json')",
        "import os; os.mkfifo('usage.json')",
        "open('usage.json', 'wb').write(b'\\xff{')",
    ],
)
def test_bad_usage_is_not_known(tmp_path, text):
    answer = agent(tmp_path, WRITES + text, usage="usage.json").ask(request())
    assert answer.problem == ""
    assert (answer.origin.tokens_in, answer.origin.prices) == (0, "")
