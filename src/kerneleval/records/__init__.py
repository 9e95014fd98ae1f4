"""Every frozen record that travels between the stages. Standard library only.

Records are values: frozen, keyword-only, comparable. Whatever is stored or sent is built from plain data
(``str``, ``int``, ``float``, ``bool``, ``None``, lists and dicts of them); :func:`to_plain` and
:func:`from_plain` convert both ways; the second checks every value.

Units stand in the field names: ``_ns`` nanoseconds, ``_s`` seconds, ``_bytes`` bytes.
"""

from __future__ import annotations

from kerneleval.records.arguments import Argument, Dim, Scalar, TensorSpec, Values
from kerneleval.records.candidates import GUIDANCE, STORED, Candidate, Origin
from kerneleval.records.code_uses import ISAS, CodeUse, InstructionLine
from kerneleval.records.device_answers import Apart, CaseAnswers, DeviceAnswer, Differential, Element
from kerneleval.records.errors import InfrastructureError, KernelEvalError, ToolError, UsageError, near
from kerneleval.records.findings import (
    Finding,
    Ghost,
    KernelResources,
    Level,
    ResourcesEvidence,
    TamperingEvidence,
    TrackEvidence,
    UsesEvidence,
)
from kerneleval.records.formulas import FUNCTIONS, Sizes, formula_names, product_text
from kerneleval.records.generation import PROBLEMS, Answer, EarlierRound, Problem, Request
from kerneleval.records.hashing import digest, new_secret
from kerneleval.records.judging_layers import LAYERS, caught_by, layer_of, layer_of_finding, layers_of
from kerneleval.records.machine_limits import Limits, Peak, Peaks
from kerneleval.records.machines import Cell, Machine, Protocol
from kerneleval.records.outcomes import Evidence, Failed, Outcome, Passed, Samples, Timing
from kerneleval.records.plain import from_plain, to_plain
from kerneleval.records.portability_matrix import AxisLevel, CompiledKernel, Matrix, MatrixRow, Rung
from kerneleval.records.results import Event, OnEvent, Result, Score, tell
from kerneleval.records.specs import AuditSpec, CandidateSpec, ReplaySource, RunSpec, asked, filled
from kerneleval.records.tables import Arg, Plain, Table
from kerneleval.records.tasks import Case, Law, Relation, Task, Tolerance
from kerneleval.records.verdicts import CellResult, Conditions, SpeedupSummary, Trust, Verdict
from kerneleval.records.vocabulary import (
    CATEGORIES,
    DIRECTIONS,
    DISTRIBUTIONS,
    DTYPES,
    GROUPS,
    LAYOUTS,
    PUBLISHED,
    REAL,
    SHAPE_CATEGORIES,
    STAGES,
    TRACKS,
)
from kerneleval.records.vocabulary import Direction as Direction
from kerneleval.records.vocabulary import Reason as Reason
from kerneleval.records.vocabulary import Track as Track

__all__ = [
    "CATEGORIES",
    "DIRECTIONS",
    "DISTRIBUTIONS",
    "DTYPES",
    "FUNCTIONS",
    "GROUPS",
    "GUIDANCE",
    "ISAS",
    "LAYERS",
    "LAYOUTS",
    "PROBLEMS",
    "PUBLISHED",
    "REAL",
    "SHAPE_CATEGORIES",
    "STAGES",
    "STORED",
    "TRACKS",
    "Answer",
    "Apart",
    "Arg",
    "Argument",
    "AuditSpec",
    "AxisLevel",
    "Candidate",
    "CandidateSpec",
    "Case",
    "CaseAnswers",
    "Cell",
    "CellResult",
    "CodeUse",
    "CompiledKernel",
    "Conditions",
    "DeviceAnswer",
    "Differential",
    "Dim",
    "EarlierRound",
    "Element",
    "Event",
    "Evidence",
    "Failed",
    "Finding",
    "Ghost",
    "InfrastructureError",
    "InstructionLine",
    "KernelEvalError",
    "KernelResources",
    "Law",
    "Level",
    "Limits",
    "Machine",
    "Matrix",
    "MatrixRow",
    "OnEvent",
    "Origin",
    "Outcome",
    "Passed",
    "Peak",
    "Peaks",
    "Plain",
    "Problem",
    "Protocol",
    "Relation",
    "ReplaySource",
    "Request",
    "ResourcesEvidence",
    "Result",
    "RunSpec",
    "Rung",
    "Samples",
    "Scalar",
    "Score",
    "Sizes",
    "SpeedupSummary",
    "Table",
    "TamperingEvidence",
    "Task",
    "TensorSpec",
    "Timing",
    "Tolerance",
    "ToolError",
    "TrackEvidence",
    "Trust",
    "UsageError",
    "UsesEvidence",
    "Values",
    "Verdict",
    "asked",
    "caught_by",
    "digest",
    "filled",
    "formula_names",
    "from_plain",
    "layer_of",
    "layer_of_finding",
    "layers_of",
    "near",
    "new_secret",
    "product_text",
    "tell",
    "to_plain",
]
