"""KernelBench-X's published corpus under this program's rules: what its transitions are, how many of its events of
"speedup increase" are of the same code, and which are left.

The corpus is the folder ``data/kbx_corpus`` of KernelBench-X's repository; nothing of it is kept here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.report import Report, parser, until_ended
from kerneleval import devices
from kerneleval.analysis.formats import kernelbenchx
from kerneleval.analysis.transitions import NOISE, counts, left_out, pairs, repair_bias, shares, transitions
from kerneleval.records import Score, to_plain


def figure(score: Score) -> str:
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}], n = {score.n}"


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("corpus", type=Path, help="the folder with all_records.jsonl")
    options = made.parse_args()
    report = Report("kbx_corpus", devices.find("cpu").machine(), options.out)
    with until_ended():
        records = kernelbenchx.read(options.corpus / "all_records.jsonl")
        found = transitions([(record.before, record.after) for record in records])
        labels = Counter(kind for record in records for kind in record.kinds)
        report.say(f"{len(records)} records of {len({r.before.task for r in records})} tasks")
        report.table(("the corpus's label", "records"), [(kind, str(n)) for kind, n in labels.most_common()])
        kinds = [(stage, kind, str(n)) for stage, of in counts(found).items() for kind, n in of.items()]
        report.table(("stage", "this program's rule", "records"), kinds)
        for name, score in shares(found).items():
            report.say(f"{name}: {figure(score)}")
        events = [t for t, r in zip(found, records, strict=True) if "speedup_increase" in r.kinds]
        same = [t for t in events if t.before.code == t.after.code]
        apart = max(abs(t.ratio - 1) for t in same)
        report.say(
            f"of {len(events)} events of speedup increase {len(same)} have the same code byte for byte, up to "
            f"{apart:.2%} apart; {sum(not t.code_changed for t in events) - len(same)} more differ in comments and "
            f"white space alone; of the {sum(t.code_changed for t in events)} others, "
            f"{sum(t.speed == 'faster' for t in events)} are faster by more than {NOISE:.0%}"
        )
        named = Counter(t.speed for t in events)
        report.table(
            ("what the rule says of the events", "events"), [(kind, str(n)) for kind, n in named.most_common()]
        )
        bias = repair_bias(found)
        report.say(
            f"median speedup of rescued candidates {figure(bias.rescued)}; of those that were right before "
            f"{figure(bias.right_before)}; Mann-Whitney p = {bias.p:.3f}"
        )
        rows = list(pairs(found))
        report.table(
            ("pairs to learn from", "number"), [(k, str(n)) for k, n in Counter(r["kind"] for r in rows).items()]
        )
        report.table(("left out because", "number"), [(why, str(n)) for why, n in left_out(found).items()])
    report.data = {"labels": labels, "counts": counts(found), "shares": to_plain(shares(found)), "bias": to_plain(bias)}
    report.write()


if __name__ == "__main__":
    main()
