#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one call: tests, then measurements. Results go to $OUT (default: results/),
# named by benchmark, device and date.
#
# Usage: scripts/gpu.sh [PART ...]      parts: start tests selftest attacks clock aa latency archetypes kernelbench; none: all
# Needs python3 with a CUDA build of torch, Triton, NumPy and SciPy. `tests` needs pytest; `archetypes` needs SQLAlchemy,
# Typer, Rich and pydantic-settings. KERNELBENCH names a checkout of KernelBench: `latency` then times it beside us, and
# `kernelbench` judges its levels 1 and 2.
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH="src:.${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
OUT=${OUT:-results}
PYTHON=${PYTHON:-python3}
parts=${*:-start tests selftest attacks clock aa latency archetypes kernelbench}
status=0
mkdir -p "$OUT"

"$PYTHON" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)' || {
  echo "error: no CUDA device that PyTorch can use; these measurements need one" >&2
  exit 2
}

part() {
  local name=$1 began=$SECONDS
  shift
  echo "== $name"
  "$@" || { echo "== $name FAILED with exit code $?"; status=1; }
  echo "== $name took $((SECONDS - began)) s"
}

for p in $parts; do
  case $p in
    start) part start "$PYTHON" -m benchmarks.start_times --out "$OUT" ;;
    tests) part tests "$PYTHON" -m pytest -m gpu -q -p no:cacheprovider tests ;;
    selftest) part selftest "$PYTHON" -m benchmarks.selftest --out "$OUT" ${SELFTEST_ARGS:-} ;;
    attacks) part attacks "$PYTHON" -m tests.attacks --out "$OUT" ${ATTACK_ARGS:-} ;;
    clock) part clock "$PYTHON" -m benchmarks.clock_agreement --out "$OUT" ;;
    aa) part aa "$PYTHON" -m benchmarks.aa --out "$OUT" ${AA_ARGS:-} ;;
    latency) part latency "$PYTHON" -m benchmarks.check_latency --out "$OUT" ${KERNELBENCH:+--kernelbench "$KERNELBENCH"} ;;
    archetypes) part archetypes "$PYTHON" -m benchmarks.archetypes --out "$OUT" ${ARCHETYPE_ARGS:-} ;;
    kernelbench)
      if [ -n "${KERNELBENCH:-}" ]; then
        part kernelbench "$PYTHON" -m benchmarks.kernelbench_judged --repo "$KERNELBENCH" --out "$OUT" ${KB_ARGS:-}
      else
        echo "== kernelbench NOT RUN: set KERNELBENCH to a checkout of the repository"
      fi ;;
    *) echo "error: unknown part '$p'; parts are start tests selftest attacks clock aa latency archetypes kernelbench" >&2; exit 2 ;;
  esac
done
exit $status
