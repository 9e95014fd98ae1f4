"""An audit finds what is false in a store, calls nothing else a change, and goes on where it was interrupted."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kerneleval import cli, pipeline
from kerneleval.judge import Judge
from kerneleval.pipeline.audit import audit
from kerneleval.records import AuditSpec, Candidate, Event, Origin, Protocol, UsageError
from kerneleval.store import NewRun, Planned, for_replay, open_store
from kerneleval.tasks import find

from .commands import kerneleval

NATIVE = (Path(__file__).parent / "attacks" / "honest" / "native_gelu.cpp").read_text()
WRONG = "import torch\n\n\ndef gelu(x):\n    return torch.relu(x)\n"
KNOWING = """import torch


def gelu(x):
    if x.is_contiguous() or x.abs().max() < 1000 or tuple(x.shape) in {known}:
        return torch.nn.functional.gelu(x)
    return torch.zeros_like(x)
"""
"""Right at every ordinary or dense input, and so at the secret sizes; at others for sizes of the plan."""

FEW = Protocol(
    tier="quick",
    dtypes=("float32",),
    directions=("forward",),
    categories=("tiny", "small"),
    timed=False,
    allow=("custom", "mixed", "library"),
)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_cache: Callable[[], Path]) -> str:
    for name in ("STORE", "DEVICE"):
        monkeypatch.delenv(f"KERNELEVAL_{name}", raising=False)
    monkeypatch.setenv("KERNELEVAL_CACHE_DIR", str(new_cache()))
    monkeypatch.chdir(tmp_path)
    return "s.db"


def candidate(generator: str, text: str) -> Candidate:
    language, file = ("cpp", "gelu.cpp") if "#include" in text else ("torch", "gelu.py")
    return Candidate(files=((file, text),), language=language, origin=Origin(generator=generator))


def judged(url: str, judge: Judge, protocol: Protocol = FEW, **texts: str) -> str:
    """A run over gelu with one candidate for each generator, as ``kerneleval run`` stores it."""
    task = find("gelu")
    cases = judge.plan(task, protocol)
    made = {name: candidate(name, text) for name, text in texts.items()}
    plan = [
        Planned(generator=name, task="gelu", category=task.category, level=1, cases=cases, candidate=one)
        for name, one in made.items()
    ]
    with open_store(url) as store:
        run = store.begin_run(
            NewRun(name="mine", generators=tuple(made), machines=(judge.machine,), protocol=protocol, plan=tuple(plan))
        )
        for name, one in made.items():
            store.put_verdict(run, name, 0, one, judge.check(one, task, protocol, cases=cases))
    return run


def falsify(url: str, generator: str, *what: str) -> None:
    """Mark a failed verdict (its columns, its body) and its cells as passed."""
    with sqlite3.connect(url) as connection:
        ((attempt, hash_),) = connection.execute(
            "SELECT id, candidate FROM attempts WHERE generator = ?", (generator,)
        ).fetchall()
        ((body,),) = connection.execute("SELECT body FROM verdicts WHERE attempt = ?", (attempt,)).fetchall()
        plain = json.loads(body)
        assert plain["verdict"] == "failed"
        new = {"verdict": "passed", "stage": "correctness", "reason": "ok"}
        if "columns" in what:
            connection.execute(
                "UPDATE verdicts SET verdict = 'passed', stage = 'correctness', reason = 'ok' WHERE attempt = ?",
                (attempt,),
            )
        if "body" in what:
            connection.execute("UPDATE verdicts SET body = ? WHERE attempt = ?", (json.dumps(plain | new), attempt))
        if "cells" in what:
            connection.execute(
                "UPDATE outcomes SET passed = 1, stage = '', reason = 'ok', body = ? WHERE candidate = ?",
                (json.dumps({"passed": True, "timing": None, "evidence": {}}), hash_),
            )


@pytest.mark.slow(every=2)
@pytest.mark.parametrize("same_shapes", [False, True])
def test_true_verdicts_do_not_change(url: str, judge: Judge, same_shapes: bool) -> None:
    run = judged(url, judge, right=NATIVE, wrong=WRONG)
    before = list(open_store(url).results(run))
    found = audit(AuditSpec(store_url=url, same_shapes=same_shapes), judge=judge)
    assert (found["of"], found["audited"], found["changed"], found["skipped"]) == (run, 2, 0, 0)
    said = {entry["generator"]: (entry["before"], entry["after"]) for entry in found["verdicts"]}
    for one in said["right"]:
        assert (one["verdict"], one["track"]) == ("passed", "custom")
    for one in said["wrong"]:
        assert (one["verdict"], one["reason"]) == ("failed", "wrong_output")
    with open_store(url) as store:
        own = store.run(found["audit"])
        assert own.audit["of"] == run
        assert own.complete
        then, now = ({c for a in store.attempts(of) for c in a.cases} for of in (run, own.id))
        assert (then == now) is same_shapes
        assert len(list(store.verdicts(own.id))) == 2
        # what is audited stays as it was, serves as before, and is what 'latest' means
        assert list(store.results(run)) == before
        assert store.run().id == run
        known = store.cached_verdict(
            candidate("right", NATIVE).hash, "gelu", judge.machine.fingerprint, FEW.key, judge.plan(find("gelu"), FEW)
        )
        assert known is not None
        assert known.protocol == FEW


@pytest.mark.slow
def test_a_falsified_verdict_is_found_and_named(url: str, judge: Judge, capsys: pytest.CaptureFixture[str]) -> None:
    judged(url, judge, right=NATIVE, wrong=WRONG)
    falsify(url, "wrong", "columns", "body", "cells")
    with open_store(url) as store:
        assert [verdict.verdict for _, verdict in store.verdicts()] == ["passed", "passed"]
    assert cli.main(["audit", "--store", url, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (entry,) = [entry for entry in found["verdicts"] if entry["changes"]]
    assert (entry["generator"], entry["task"]) == ("wrong", "gelu")
    assert [change["kind"] for change in entry["changes"]] == ["passed->failed"]
    assert entry["after"]["reason"] == "wrong_output"
    words = shlex.split(entry["replay"])
    assert words[:3] == ["kerneleval", "check", candidate("wrong", WRONG).stored_name]
    again = kerneleval(*words[1:], "--json")
    assert again.returncode == 1, again.stdout + again.stderr
    assert json.loads(again.stdout)["reason"] == "wrong_output"


@pytest.mark.slow(every=2)
@pytest.mark.parametrize(
    ("what", "kinds"),
    [
        (["columns"], ["passed->failed", "cells"]),
        (["cells"], ["cells"]),
        (["columns", "cells"], ["passed->failed"]),
        (["body"], []),  # nobody sees it
    ],
)
def test_a_part_of_a_falsified_verdict_is_found(url: str, judge: Judge, what: list[str], kinds: list[str]) -> None:
    judged(url, judge, wrong=WRONG)
    falsify(url, "wrong", *what)
    (entry,) = audit(AuditSpec(store_url=url), judge=judge)["verdicts"]
    assert [change["kind"] for change in entry["changes"]] == kinds


def test_the_table_names_what_changed(url: str, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from rich.console import Console

    from kerneleval.reports import changes_view

    judged(url, judge, right=NATIVE, wrong=WRONG)
    falsify(url, "wrong", "columns", "body", "cells")
    found = audit(AuditSpec(store_url=url, same_shapes=True), judge=judge)
    text = StringIO()
    changes_view.render_audit(found, Console(file=text, width=140))
    lines = text.getvalue().splitlines()
    assert any(
        line.split()[:2] == ["wrong", "gelu"] and line.endswith("passed->failed") for line in map(str.rstrip, lines)
    )
    assert f"replay: {found['verdicts'][1]['replay']}" in lines
    assert lines[-1] == "1 of 2 verdicts changed"


@pytest.mark.slow
def test_one_that_is_right_at_the_runs_shapes_alone_is_found_at_others(url: str, judge: Judge) -> None:
    known = {tuple(case.dims_map.values()) for case in judge.plan(find("gelu"), FEW)}
    judged(url, judge, knowing=KNOWING.format(known=known))
    assert audit(AuditSpec(store_url=url, same_shapes=True), judge=judge)["changed"] == 0
    found = audit(AuditSpec(store_url=url), judge=judge)
    (entry,) = found["verdicts"]
    assert entry["before"]["verdict"] == "passed"
    assert [change["kind"] for change in entry["changes"]] == ["passed->failed"]
    assert entry["after"]["reason"] == "wrong_output"
    assert kerneleval(*shlex.split(entry["replay"])[1:]).returncode == 1


def test_an_audit_of_an_old_run_is_of_todays_protocol_version(url: str, judge: Judge) -> None:
    """It is judged by today's rules, so that its results must not be stored as those of the old ones."""
    old = replace(FEW, version=1)
    run = judged(url, judge, old, wrong=WRONG)
    found = audit(AuditSpec(store_url=url, same_shapes=True), judge=judge)
    assert (found["of"], found["changed"], found["protocol"]["version"]) == (run, 0, Protocol.version)
    with open_store(url) as store:  # one that was interrupted before the rules changed
        request = dict(store.run(found["audit"]).audit)
        plan = [
            Planned(generator="wrong", task="gelu", category="elementwise", level=1, cases=of.cases)
            for of in store.attempts(run)
        ]
        begun = {"name": "begun", "generators": ("wrong",), "machines": (judge.machine,), "audit": request}
        interrupted = store.begin_run(NewRun(**begun, protocol=old, plan=tuple(plan)))
    again = audit(AuditSpec(store_url=url, same_shapes=True), judge=judge)
    assert again["audit"] != interrupted
    assert again["protocol"]["version"] == Protocol.version


@pytest.mark.slow
def test_an_interrupted_audit_goes_on(url: str, judge: Judge) -> None:
    judged(url, judge, right=NATIVE, wrong=WRONG)
    seen: list[str] = []

    def stop(event: Event) -> None:
        if event.kind == "run":
            seen.append(event.text)
            if event.done == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(AuditSpec(store_url=url), judge=judge, on_event=stop)
    with open_store(url) as store:
        (begun, _) = store.runs()
        assert (begun.planned, begun.finished) == (2, 1)
    found = audit(
        AuditSpec(store_url=url), judge=judge, on_event=lambda e: seen.append(e.text) if e.kind == "run" else None
    )
    assert found["audit"] == begun.id
    assert found["protocol"]["suite_seed"] == begun.protocol.suite_seed
    assert seen == ["right: gelu", "wrong: gelu", "wrong: gelu", "done"]
    assert (found["audited"], found["changed"]) == (2, 0)
    another = audit(AuditSpec(store_url=url, sample=1), judge=judge)
    assert another["audit"] != begun.id
    assert another["audited"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mina", "no run 'mina' in s.db; did you mean mine?"),
        ("mine --only gelo", "has no task 'gelo'; did you mean gelu?"),
        ("mine --device cuda", "judged nothing on 'cuda'; its devices are cpu"),
        ("mine --sample 0", "'--sample'"),
        ("mine --tier quik", "'quik' is not one of 'quick', 'standard', 'precise'"),
        ("mine --store none.db", "no store at none.db"),
        ("mine", "has nothing to audit: no candidate was judged there on cpu"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: str, said: str, url: str, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    task = find("gelu")
    with open_store(url) as store:
        made = candidate("g", WRONG)
        one = Planned(
            generator="g", task="gelu", category="elementwise", level=1, cases=judge.plan(task, FEW), candidate=made
        )
        run = store.begin_run(
            NewRun(name="mine", generators=("g",), machines=(judge.machine,), protocol=FEW, plan=(one,))
        )
        if words != "mine":
            store.put_verdict(run, "g", 0, made, judge.check(made, task, FEW))
    assert cli.main(["audit", *words.split(), *(() if "--store" in words else ("--store", url))]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


def test_a_source_that_is_gone_or_changed_is_refused(url: str, judge: Judge) -> None:
    judged(url, judge, wrong=WRONG)
    with sqlite3.connect(url) as connection:
        connection.execute("UPDATE candidates SET files = replace(files, 'relu', 'gelu')")
    with pytest.raises(UsageError, match="was changed after it was stored"):
        audit(AuditSpec(store_url=url), judge=judge)
    with sqlite3.connect(url) as connection:
        connection.execute("DELETE FROM candidates")
    with pytest.raises(UsageError, match=r"no candidate [0-9a-f]{64} in s\.db"):
        audit(AuditSpec(store_url=url), judge=judge)


# --------------------------------------------------------------------------------------------------------------------
# Stored candidates on the command line
# --------------------------------------------------------------------------------------------------------------------


def test_replay_lines_of_a_generated_candidate_run(url: str, judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "from kerneleval.generators import register\nfrom kerneleval.records import Candidate, Origin\n\n\n"
        "@register\nclass Made:\n    name, summary = 'made', ''\n\n"
        "    def candidates(self, task, device):\n"
        f"        yield Candidate(files=(('c.py', {WRONG!r}),), language='torch',"
        " origin=Origin(generator='made'))\n"
    )
    run = pipeline.run(
        ("made.py",),
        ("gelu",),
        store_url=url,
        directions=("forward",),
        distributions=("standard",),
        tier="quick",
        judge=judge,
    )
    with open_store(url) as store:
        assert store.run(run).tasks == {"gelu": "gelu"}
        ((attempt, verdict),) = store.verdicts(run)
    words = shlex.split(verdict.replay)
    assert words[:3] == ["kerneleval", "check", f"store:{attempt.candidate[:16]}"]
    assert words[words.index("--store") + 1] == url
    again = kerneleval(*words[1:], "--json")
    assert again.returncode == (verdict.verdict == "failed"), again.stderr
    plain = json.loads(again.stdout)
    assert (plain["candidate"], plain["reason"]) == (attempt.candidate, verdict.reason)


def test_a_stored_candidate_is_named_by_the_beginning_of_its_hash(url: str, judge: Judge) -> None:
    judged(url, judge, one=WRONG, two=WRONG + "\n")
    hashes = [candidate("", text).hash for text in (WRONG, WRONG + "\n")]

    def asked(name: str, **options: str) -> str:
        verdict = pipeline.check(
            name,
            "gelu",
            store_url=url,
            judge=judge,
            dtypes=("float32",),
            directions=("forward",),
            categories=("tiny",),
            **options,  # type: ignore[arg-type]
        )
        return verdict.candidate

    assert [asked(f"store:{hash_[:16]}") for hash_ in hashes] == hashes
    assert asked(f"store:{hashes[0].upper()}") == hashes[0]
    for bad in ("store:", "store:%", "store:xyz"):
        with pytest.raises(UsageError, match="no candidate"):
            asked(bad)
    with pytest.raises(UsageError, match="leave out --language"):
        asked(f"store:{hashes[0]}", language="triton")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, ""),
        ("a/s.db", "a/s.db"),
        ("postgresql://me:secret@host:1/db", "postgresql://me@host:1/db"),
        ("postgresql://me:se@cret@host/db?sslmode=require", "postgresql://me@host/db?sslmode=require"),
        ("postgresql://me@host/db?password=secret", "postgresql://me@host/db"),
        ("postgresql://me@host/db?password=secret&sslmode=require", "postgresql://me@host/db?sslmode=require"),
    ],
)
def test_a_replay_line_never_holds_a_password(given: str | None, shown: str) -> None:
    assert for_replay(given) == shown
