#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one call: tests, then measurements. Results go to $OUT (default: results/),
# named by benchmark, device and date.
#
# Usage: scripts/gpu.sh [PART ...]      none: all parts, which are
#        start peaks roofline tests margins tasks selftest attacks clock aa latency rewards layers archetypes real generators
#        kernelbench kbattacks libraries
# Needs python3 with a CUDA build of torch, Triton, NumPy and SciPy. `tests` needs pytest; `archetypes` and `generators`
# need SQLAlchemy, Typer, Rich and pydantic-settings. KERNELBENCH names a checkout of KernelBench: `latency` then times it
# beside us, `kernelbench` judges its levels 1 and 2, and `kbattacks` has both judge the corpus of attacks. `libraries`
# judges the kernels of liger-kernel and flag-gems as far as they can be imported (flag-gems needs PyYAML and SQLAlchemy
# too); what is not installed may lie unpacked in a folder that PYTHONPATH names.
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH="src:.${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
OUT=${OUT:-results}
PYTHON=${PYTHON:-python3}
parts=${*:-start peaks roofline tests margins tasks selftest attacks clock aa latency rewards layers archetypes real generators kernelbench kbattacks libraries}
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
    peaks) part peaks "$PYTHON" -m benchmarks.peaks --out "$OUT" ;;
    roofline) part roofline "$PYTHON" -m benchmarks.roofline --out "$OUT" ${ROOFLINE_ARGS:-} ;;
    tests) part tests "$PYTHON" -m pytest -m gpu -q -p no:cacheprovider tests/gpu ;;
    margins) part margins "$PYTHON" -m benchmarks.false_rejections --out "$OUT" ${MARGIN_ARGS:---seconds 120} ;;
    tasks) part tasks "$PYTHON" -m benchmarks.tasks_selftest --out "$OUT" ${TASKS_ARGS:-} ;;
    selftest) part selftest "$PYTHON" -m benchmarks.selftest --out "$OUT" ${SELFTEST_ARGS:-} ;;
    attacks) part attacks "$PYTHON" -m tests.attacks --out "$OUT" ${ATTACK_ARGS:-} ;;
    clock) part clock "$PYTHON" -m benchmarks.clock_agreement --out "$OUT" ;;
    aa) part aa "$PYTHON" -m benchmarks.aa --out "$OUT" ${AA_ARGS:-} ;;
    latency) part latency "$PYTHON" -m benchmarks.check_latency --profile --out "$OUT" ${KERNELBENCH:+--kernelbench "$KERNELBENCH"} ;;
    rewards) part rewards "$PYTHON" -m benchmarks.reward_throughput --out "$OUT" ${KERNELBENCH:+--kernelbench "$KERNELBENCH"} ;;
    layers) part layers "$PYTHON" -m benchmarks.layer_costs --out "$OUT" ;;
    archetypes) part archetypes "$PYTHON" -m benchmarks.archetypes --out "$OUT" ${ARCHETYPE_ARGS:-} ;;
    real) part real "$PYTHON" -m benchmarks.real_shapes --out "$OUT" ${REAL_ARGS:-} ;;
    generators) part generators "$PYTHON" -m benchmarks.generators --out "$OUT" --store "$OUT/generators.db" ${GENERATORS_ARGS:---generators compile --tasks core --dtypes float32 --processes 8} ;;
    kernelbench)
      if [ -n "${KERNELBENCH:-}" ]; then
        part kernelbench "$PYTHON" -m benchmarks.kernelbench_judged --repo "$KERNELBENCH" --out "$OUT" ${KB_ARGS:-}
      else
        echo "== kernelbench NOT RUN: set KERNELBENCH to a checkout of the repository"
      fi ;;
    kbattacks)
      if [ -n "${KERNELBENCH:-}" ]; then
        part kbattacks "$PYTHON" -m benchmarks.kernelbench_attacks --repo "$KERNELBENCH" --out "$OUT" ${KBATTACK_ARGS:-}
      else
        echo "== kbattacks NOT RUN: set KERNELBENCH to a checkout of the repository"
      fi ;;
    libraries)
      if "$PYTHON" -c 'import sys; from importlib.util import find_spec as f; sys.exit(not (f("liger_kernel") or f("flag_gems")))'; then
        part libraries "$PYTHON" -m benchmarks.libraries --out "$OUT" ${LIBRARY_ARGS:-}
      else
        echo "== libraries NOT RUN: neither liger_kernel nor flag_gems can be imported; install or unpack their wheels"
      fi ;;
    *) echo "error: unknown part '$p'; parts are start peaks roofline tests margins tasks selftest attacks clock aa latency rewards layers archetypes real generators kernelbench kbattacks libraries" >&2; exit 2 ;;
  esac
done
exit $status
