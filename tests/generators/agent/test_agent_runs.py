"""Agents that write, check, repair, print, hang and cheat: what becomes of each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tests.generators.agent.agents import RIGHT, FakeCache, agent, request, unconfined

from kerneleval.generators import Asked, Stoppable
from kerneleval.generators.agent import Agent, from_settings, workspace
from kerneleval.generators.agent.settings import settings_of
from kerneleval.records import Answer, Candidate, EarlierRound, Origin, UsageError
from kerneleval.sandbox import jail, processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not run: the jail is Linux's")

WRITES = f"open('candidate.py', 'w').write({RIGHT!r})\n"


@pytest.fixture(autouse=True)
def _leaves_nothing(tmp_path_factory, monkeypatch):
    """Workspaces are made in a folder of the test's, and are gone when it ends."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def judge(candidate: Candidate) -> tuple[bool, str]:
    right = candidate.main == RIGHT
    return right, "It is right." if right else "It is wrong."


# -- what is taken -----------------------------------------------------------------------------------------------------


def test_one_that_writes_at_once(tmp_path):
    made = agent(tmp_path, WRITES + "print('done')")
    assert isinstance(made, Asked)
    assert isinstance(made, Stoppable)
    answer = made.ask(request(sample=3))
    assert answer.problem == "", answer.message
    assert answer.candidate.files == (("candidate.py", RIGHT),)
    assert answer.candidate.language == "numba"
    assert answer.candidate.origin == answer.origin
    assert answer.text == "done\n"
    origin = answer.origin
    assert (origin.generator, origin.sample, origin.round, origin.model, origin.prices) == ("scripted", 3, 0, "", "")
    assert origin.prompt_hash
    assert 0 < origin.seconds < 60


def test_what_a_workspace_holds(tmp_path):
    earlier = Candidate(files=(("candidate.py", "import numba\n# first\n"),), language="numba")
    turn = EarlierRound(answer=Answer(candidate=earlier, origin=Origin()), feedback="It is wrong where N is odd.")
    lost = EarlierRound(
        answer=Answer(candidate=None, origin=Origin(), problem="no_code", message="Nothing came."), feedback=""
    )
    text = """
        import json, os, sys
        def all_of(folder):
            return {os.path.join(d, f): open(os.path.join(d, f)).read() for d, _, fs in os.walk(folder)
                    for f in fs if d != './.kerneleval'}
        print(json.dumps({"files": all_of("."), "words": sys.argv[1:], "mode": os.stat(".").st_mode & 0o777,
                          "env": dict(os.environ), "cwd": os.getcwd()}))
    """
    words = ("{task}", "{language}", "{device}", "{seconds}", "{x} {{}}")
    answer = agent(tmp_path, text, words=words).ask(request(history=(turn, lost)))
    assert answer.problem == "no_code", answer.message
    assert answer.origin.round == 2
    assert answer.origin.parent == earlier.hash
    found = json.loads(answer.text)
    files = found["files"]
    assert "gelu" in files["./TASK.md"]
    assert "round 3" in files["./TASK.md"]
    assert "candidate.py" in files["./TASK.md"]
    assert "kerneleval check candidate.py" not in files["./README.md"]  # there is no judge
    assert "reference = F.gelu" in files["./reference.py"]
    assert json.loads(files["./device.json"])["kind"] == "cpu"
    assert files["./feedback/round_1.md"] == "It is wrong where N is odd.\n"
    assert files["./feedback/round_2.md"] == "Nothing came.\n"
    assert files["./earlier/round_1.py"] == earlier.main
    assert "./earlier/round_2.py" not in files
    assert found["words"] == ["gelu", "numba", "cpu", "60", "{x} {{}}"]
    assert found["mode"] == 0o700
    assert found["env"].keys() - {"LANG", "TERM", "LC_CTYPE"} == {"PATH", "HOME", "TMPDIR"}
    assert found["env"]["HOME"] == found["cwd"]


def test_named_variables_are_handed_on(tmp_path, monkeypatch):
    monkeypatch.setenv("AN_AGENTS_KEY", "k")
    monkeypatch.setenv("ANOTHER_SECRET", "s")
    text = "import os; print(os.environ.get('AN_AGENTS_KEY'), os.environ.get('ANOTHER_SECRET'), os.environ['HOME'])"
    answer = agent(tmp_path, text, env=["AN_AGENTS_KEY", "HOME", "NOT_THERE"]).ask(request())
    assert answer.text.split() == ["k", "None", os.environ["HOME"]]


@pytest.mark.parametrize(
    ("text", "problem", "told"),
    [
        ("print('I give up')", "no_code", "exit code 0 and no candidate: it left no candidate.py; .* I give up"),
        ("raise SystemExit(3)", "endpoint", "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "endpoint", "signal 11"),
        ("open('candidate.py', 'w')", "no_code", "candidate.py: the file is empty"),
        ("open('candidate.py', 'wb').write(b'\\xff\\xfe\\xff')", "no_code", "candidate.py: not UTF-8"),
        ("open('candidate.py', 'wb').truncate(5 << 20)", "no_code", "larger than"),
        ("import os; os.symlink('reference.py', 'candidate.py')", "no_code", "symbolic links"),
        ("import os; os.mkfifo('candidate.py')", "no_code", "no regular file"),
        ("import os; os.mkdir('candidate.py')", "no_code", "no regular file"),
        ("open('candidate.py', 'w').write('# kerneleval-origin: {\"model\": 3}\\nx = 1\\n')", "no_code", "model"),
    ],
)
def test_no_candidate(tmp_path, text, problem, told):
    cache = FakeCache()
    answer = agent(tmp_path, text, cache=cache).ask(request())
    assert answer.candidate is None
    assert answer.problem == problem
    assert re.search(told, answer.message), answer.message
    assert tempfile.gettempdir() not in answer.message
    assert len(cache.kept) == (problem == "no_code")


def test_a_candidate_is_taken_whatever_the_exit_code(tmp_path):
    assert agent(tmp_path, WRITES + "raise SystemExit(1)").ask(request()).candidate.main == RIGHT


def test_an_origin_that_an_agent_writes_does_not_count(tmp_path):
    lie = '# kerneleval-origin: {"generator": "human", "money_usd": 5.0}\n' + RIGHT
    side = "open('candidate.origin.json', 'w').write('{\"generator\": \"human\"}')\n"
    answer = agent(tmp_path, f"open('candidate.py', 'w').write({lie!r})\n" + side).ask(request())
    assert answer.candidate.origin.generator == "scripted"
    assert answer.candidate.origin.money_usd == 0.0


def test_a_command_that_is_not_there(tmp_path):
    table = {"name": "a", "command": ["no-such-program"]}
    answer = from_settings(table, "p").ask(request())
    assert answer.problem == "endpoint"
    assert "'no-such-program' cannot be started" in answer.message
    answer = Agent(settings_of(table, "p"), confine=unconfined).ask(request())
    assert (answer.problem, "could not be started" in answer.message) == ("endpoint", True)


def test_without_a_jail_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(jail, "_why_not", lambda: "it is another system")
    with pytest.raises(UsageError, match="no agent can be run here: it is another system"):
        agent(tmp_path, WRITES).ask(request())


# -- checks ------------------------------------------------------------------------------------------------------------

REPAIRS = f"""
import subprocess
open('candidate.py', 'w').write('import numba\\n')
while True:
    done = subprocess.run(['kerneleval', 'check', 'candidate.py'], capture_output=True, text=True)
    print(done.returncode, done.stdout, done.stderr, flush=True)
    if done.returncode != 1:
        break
    open('candidate.py', 'w').write({RIGHT!r})
"""


def test_one_that_checks_and_repairs(tmp_path):
    answer = agent(tmp_path, REPAIRS).ask(request(judge))
    assert answer.candidate.main == RIGHT
    assert "1 It is wrong.\n\n(4 of 5 checks are left.)" in answer.text
    assert "0 It is right.\n\n(3 of 5 checks are left.)" in answer.text


def test_the_budget_is_kept(tmp_path):
    seen = []

    def check(candidate):
        seen.append(candidate.main)
        return False, "It is wrong."

    text = """
        import subprocess
        for i in range(4):
            open(f'd{i}.py', 'w').write(f'import numba\\n# {i}\\n')
            done = subprocess.run(['kerneleval', 'check', f'd{i}.py'], capture_output=True, text=True)
            print(done.returncode, done.stdout.split('\\n')[0])
    """
    answer = agent(tmp_path, text, checks=2).ask(request(check))
    assert (
        answer.text.splitlines() == ["1 It is wrong.", "1 It is wrong."] + ["3 The budget of 2 checks is used up."] * 2
    )
    assert len(seen) == 2


def test_the_budget_is_kept_when_many_ask_at_once(tmp_path):
    lock, seen = threading.Lock(), []

    def check(candidate):
        assert lock.acquire(blocking=False)  # one draft at a time
        time.sleep(0.02)
        seen.append(candidate)
        lock.release()
        return True, "so"

    text = """
        import subprocess
        open('d.py', 'w').write('import numba\\n')
        many = [subprocess.Popen(['kerneleval', 'check', 'd.py'], stdout=subprocess.DEVNULL) for _ in range(12)]
        print(sorted(p.wait() for p in many))
    """
    answer = agent(tmp_path, text, checks=3).ask(request(check))
    assert json.loads(answer.text) == [0] * 3 + [3] * 9
    assert len(seen) == 3


def test_what_is_no_draft_costs_nothing(tmp_path):
    text = """
        import os, subprocess
        open('empty.py', 'w'); open('bytes.py', 'wb').write(b'\\xff'); open('big.py', 'wb').truncate(5 << 20)
        os.symlink('reference.py', 'link.py'); os.mkfifo('fifo.py')
        for words in (['check', 'empty.py'], ['check', 'bytes.py'], ['check', 'big.py'], ['check', 'link.py'],
                      ['check', 'fifo.py'], ['check', 'none.py'], ['check'], ['judge', 'x'], ['check', '--help']):
            done = subprocess.run(['kerneleval', *words], capture_output=True, text=True)
            print(done.returncode, (done.stdout + done.stderr).strip())
    """
    seen = []
    answer = agent(tmp_path, text).ask(request(seen.append))
    assert seen == []
    lines = answer.text.splitlines()
    assert [line[:2] for line in lines] == ["2 "] * 9
    assert "the file is empty" in lines[0]
    assert tempfile.gettempdir() not in answer.text


def test_a_judge_that_fails_is_not_told_of(tmp_path):
    def check(candidate):
        raise RuntimeError("secret seed 4711")

    answer = agent(tmp_path, REPAIRS).ask(request(check))
    assert "The judge failed" in answer.text
    assert "4711" not in answer.text


def test_the_judges_time_is_not_the_agents(tmp_path):
    def slow(candidate):
        time.sleep(2.5)
        return False, "It is wrong."

    text = "import subprocess\nopen('d.py','w').write('import numba')\nsubprocess.run(['kerneleval','check','d.py'])\n"
    answer = agent(tmp_path, text + WRITES, max_seconds=2).ask(request(slow))
    assert answer.candidate is not None, answer.message


# -- output, time, what is left ----------------------------------------------------------------------------------------


def test_megabytes_of_output(tmp_path):
    text = "import sys\nsys.stdout.write('first\\n' + 'x' * (8 << 20) + '\\nlast\\n')\n" + WRITES
    answer = agent(tmp_path, text).ask(request())
    assert answer.candidate is not None
    assert answer.text.startswith("first\nxxx")
    assert answer.text.endswith("xxx\nlast\n")
    assert "bytes are left out" in answer.text
    assert len(answer.text) < (1 << 20) + 100


HANGS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(1000)', sys.argv[1]])
    os._exit(0)
print('up', flush=True)
"""


def _running(mark: str) -> list[int]:
    found = []
    for pid in processes.of_uid(os.geteuid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words[1:] and processes.is_running(pid):
            found.append(pid)
    return found


@pytest.mark.slow
def test_one_that_hangs_and_its_daemons_end(tmp_path):
    mark = f"mark-{time.monotonic_ns()}"
    cache = FakeCache()
    made = agent(tmp_path, HANGS + "time.sleep(1000)", words=(mark,), max_seconds=4, cache=cache)
    seen: list[int] = []
    watch = threading.Timer(3.5, lambda: seen.extend(_running(mark)))
    watch.start()
    answer = made.ask(request())
    watch.join()
    assert len(seen) >= 2  # the control: the agent and its daemon were there
    assert _running(mark) == []
    assert answer.problem == "budget"
    assert "4 seconds were over" in answer.message
    assert cache.kept == {}


def test_a_daemon_does_not_outlive_the_agent(tmp_path):
    mark = f"mark-{time.monotonic_ns()}"
    answer = agent(tmp_path, HANGS + WRITES + "time.sleep(0.2)", words=(mark,)).ask(request())
    assert answer.candidate is not None
    assert _running(mark) == []


def test_what_is_there_when_time_is_over_is_taken(tmp_path):
    cache = FakeCache()
    text = WRITES + "import time\ntime.sleep(1000)"
    answer = agent(tmp_path, text, max_seconds=4, cache=cache).ask(request())
    assert answer.candidate.main == RIGHT
    assert len(cache.kept) == 1


def test_stop_ends_what_is_under_way(tmp_path):
    mark = f"mark-{time.monotonic_ns()}"
    cache = FakeCache()
    made = agent(tmp_path, WRITES + "import time; time.sleep(1000)", words=(mark,), cache=cache)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(made.ask(request())))
    thread.start()
    while not _running(mark):
        time.sleep(0.02)
    made.stop()
    assert _running(mark) == []
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    thread.join()
    assert answers[0].problem == "endpoint"
    assert cache.kept == {}
    assert made.ask(request()).problem == "endpoint"  # it stays so


@pytest.mark.slow
def test_the_death_of_this_process_ends_the_agent(tmp_path):
    mark = f"mark-{time.monotonic_ns()}"
    agent(tmp_path, "import time; time.sleep(1000)")
    code = f"""
import sys, tempfile
sys.path.insert(0, {os.getcwd()!r})
tempfile.tempdir = {tempfile.gettempdir()!r}
from pathlib import Path
from tests.generators.agent.agents import agent, request
agent(Path({str(tmp_path)!r}), 'import time; time.sleep(1000)', words=({mark!r},)).ask(request())
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        while len(_running(mark)) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 30
        while _running(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _running(mark) == []
    finally:
        process.kill()
        process.wait()
    assert len(list(Path(tempfile.gettempdir()).iterdir())) == 1  # nobody was there to remove it
    assert agent(tmp_path, WRITES).ask(request()).candidate is not None  # the next one does: see the fixture


def test_a_workspace_in_use_is_not_swept(tmp_path):
    text = "import time\n" + WRITES
    with workspace.Workspace(
        request(),
        agent(tmp_path, text).prompt(request()),
        candidate="c.py",
        seconds=1,
        checks=0,
        network=False,
    ) as other:
        assert agent(tmp_path, text).ask(request()).candidate is not None
        assert other.tools.is_dir()


def test_a_tree_of_any_form_is_removed(tmp_path):
    text = """
        import os
        os.makedirs('closed/in'); open('closed/in/f', 'w'); os.symlink('/', 'closed/root'); os.chmod('closed', 0)
        for _ in range(3000):
            os.mkdir('d'); os.chdir('d')
    """
    answer = agent(tmp_path, text).ask(request())
    assert answer.problem == "no_code", answer.message


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_an_answer_is_paid_once(tmp_path):
    cache, log = FakeCache(), tmp_path / "log"
    log.touch()
    text = f"open({str(log)!r}, 'a').write('run\\n')\n" + WRITES + 'print(\'{"model": "m", "cost_usd": 0.25}\')'
    made = agent(tmp_path, text, cache=cache, writes=[str(log)], usage="stdout")
    first = made.ask(request())
    assert json.loads(json.dumps(cache.kept)) == cache.kept  # plain data
    again = agent(tmp_path, text, cache=cache, writes=[str(log)], usage="stdout").ask(request())
    assert again == first
    assert first.origin.money_usd == 0.25
    assert log.read_text() == "run\n"
    turn = EarlierRound(answer=first, feedback="slow")
    others = [request(sample=1), request(judge), request(history=(turn,))]
    for other in others:
        made.ask(other)
    made.ask(request(history=(EarlierRound(answer=first, feedback="fast"),)))
    agent(tmp_path, text, cache=cache, writes=[str(log)], checks=6).ask(request())
    assert log.read_text() == "run\n" * 6
    assert len(cache.kept) == 6
