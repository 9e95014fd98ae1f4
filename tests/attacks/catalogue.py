"""What the corpus covers: every known way to fool a judge, the classes of specimens that try it, what becomes of them.

``python -m tests.attacks.catalogue`` prints the table of ``docs/threat-model.md``, which a test compares with it.
"""

from __future__ import annotations

import sys

from tests.attacks.specimens import Specimen, every

__all__ = ["GROUPS", "table"]

GROUPS: dict[str, tuple[str, ...]] = {
    "uninitialised output": ("uninitialised_output",),
    "input mutation, stray writes": ("input_mutation", "stray_writes", "accumulated_gradient"),
    "output aliasing": ("output_aliasing", "static_output_buffer"),
    "caching by pointer, identity, shape": ("cache_by_pointer", "cache_by_identity", "cache_by_shape"),
    "caching by a fingerprint of the content": ("caching", "cache_by_fingerprint"),
    "results stashed in files or freed memory": ("stashed_results",),
    "warm-up computes, timing copies": ("stale_after_warm_up",),
    "skipped calls": ("skipped_calls",),
    "merged calls": ("merged_calls",),
    "deferred work: threads, processes, streams": (
        "deferred_work",
        "unjoined_thread",
        "unjoined_process",
        "side_stream",
        "missing_synchronisation",
    ),
    "lazy outputs, tensor subclasses": ("lazy_output",),
    "patched clocks and comparisons": ("patched_clock", "patched_comparison", "patched_autograd", "forged_device_time"),
    "rebound names, swapped code": ("rebound_names", "swapped_code"),
    "stolen expectations: frames, heap, shared and device memory": (
        "stolen_expectation",
        "parent_memory",
        "inherited_descriptors",
        "device_memory_scan",
    ),
    "poisoned expectations": ("poisoned_expectation", "poisoned_output"),
    "detecting the phase": ("phase_detection", "observer_detection"),
    "forged results, descriptors, messages, standard output": (
        "forged_report",
        "forged_result_file",
        "protocol_forgery",
    ),
    "exit codes and exit hooks": ("exit_hooks", "crash"),
    "falling back on the library, hiding it": (
        "fallback",
        "hidden_library",
        "library_as_kernel",
        "library_by_shape",
        "library_when_timed",
    ),
    "laundering what the library computed": ("laundered_library",),
    "laundering what NumPy computed": ("laundered_numpy",),
    "laundering what another process computed": ("laundered_process",),
    "hiding what was counted": ("hidden_counts",),
    "inheriting or importing the reference": ("inherited_reference", "reference_import"),
    "decoy kernels": ("decoy_kernel",),
    "precision downgrade, coarse formulas": ("precision_downgrade", "coarse_approximation"),
    "factors, offsets and cuts below a rounding step": ("systematic_error",),
    "quantisation left out, faked, coarse, emulated": (
        "no_quantisation",
        "coarse_quantisation",
        "emulated_quantisation",
    ),
    "draws that are none, or depend on one another": ("no_draw", "dependent_draws"),
    "outputs below the tolerance, input-independent ones": ("below_tolerance", "constant_output", "input_independent"),
    "near-identity operators": ("near_identity",),
    "outputs under each other's names": ("swapped_outputs",),
    "unstable or incomplete formulas": ("unstable_formula", "range_cut", "dropped_nan", "wrong_start"),
    "dropped arguments and parameters": ("dropped_parameter",),
    "folded, packed, assumed weights; module state": (
        "folded_weights",
        "stale_weights",
        "assumed_weights",
        "other_parameters",
        "training_state",
    ),
    "hard-coded shapes and sizes": (
        "hard_coded_shapes",
        "thin_shapes",
        "kernel_widths",
        "plan_by_shape",
        "large_sizes",
        "one_rank",
        "narrow_offsets",
    ),
    "ignored strides and offsets": ("ignored_strides", "ignored_offset"),
    "partial work, rescaled": ("partial_work",),
    "guessed and stolen seeds": ("seed_guessing", "seed_reading"),
    "gradients: missing, detached, partial, straight through": (
        "zero_gradients",
        "detached_gradients",
        "partial_gradients",
        "straight_through",
        "ignored_upstream",
        "stale_saved_tensors",
    ),
    "outputs left out while gradients are asked for": ("skipped_forward",),
    "stale graph replay": ("stale_graph",),
    "global flags": ("global_state",),
    "native code: detours, GOT patches, tracing, own memory, signals": (
        "function_detour",
        "got_patch",
        "ptrace",
        "self_memory",
        "signal_trap",
        "goes_on_when_stopped",
    ),
    "making the judge wait": ("stalled_pauses", "outruns_the_stop", "slow_calls", "stalled_messages"),
    "exhaustion: memory, disk, processes, descriptors, output, time, device": (
        "memory_bomb",
        "file_flood",
        "fork_bomb",
        "descriptors",
        "output_flood",
        "hang",
        "device_left_broken",
    ),
}
"""Ways to fool a judge, each with its classes of specimens."""


def table() -> str:
    """The table, in Markdown."""
    attacks = [s for s in every() if s.verdict == "failed"]
    lines = ["| way | specimens | rejected as |", "|---|---|---|"]
    for title, kinds in GROUPS.items():
        mine = [s for s in attacks if s.kind in kinds]
        lines.append(f"| {title} | {', '.join(map(_shown, mine))} | {', '.join(_reasons(mine))} |")
    return "\n".join(lines)


def _shown(specimen: Specimen) -> str:
    return f"`{specimen.path.parent.name}/{specimen.path.name}`"


def _reasons(specimens: list[Specimen]) -> list[str]:
    return [f"`{reason}`" for reason in sorted({reason for s in specimens for reason in s.reasons})]


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
