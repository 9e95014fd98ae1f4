"""OpenCL candidates: what kernels are given, how they are launched and counted, what errors say."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
import torch

from kerneleval import languages
from kerneleval.languages import BuildError, LoadError, OutputSpec
from kerneleval.languages.common import opencl_runtime
from kerneleval.records import UsageError

if reason := opencl_runtime.unusable():
    pytest.skip(f"not run: {reason}", allow_module_level=True)
pyopencl = importlib.import_module("pyopencl")

X = torch.arange(6.0).reshape(2, 3)
OUT = OutputSpec(shape=(2, 3), dtype="float32")
DIMS = {"M": 2, "N": 3}
HEAD = "// kerneleval-launch: gelu_float32 global=M*N local=1\n"


def scale(factor: str, name: str = "gelu_float32", element: str = "float") -> str:
    return (
        f"kernel void {name}(global const {element} *x, global {element} *out, long M, long N) {{\n"
        f"    const long i = get_global_id(0);\n    out[i] = x[i] * {factor};\n}}\n"
    )


def call(loaded, *args, out=OUT, dims=DIMS):
    return loaded.forward(list(args), [out], dims)


def test_dtypes_choose_kernels(load):
    head = HEAD + HEAD.replace("float32", "int32").replace("gelu", "run") + HEAD.replace("float32", "float64")
    source = head + scale("2") + scale("3", "run_int32", "int") + scale("4", "gelu_float64", "double")
    loaded = load(source, "opencl")
    assert torch.equal(call(loaded, X), X * 2)
    assert torch.equal(call(loaded, X.int(), out=OutputSpec(shape=(2, 3), dtype="int32")), X.int() * 3)
    assert torch.equal(call(loaded, X.double(), out=OutputSpec(shape=(2, 3), dtype="float64")), X.double() * 4)
    with pytest.raises(NotImplementedError, match="no entry point for float16"):
        call(loaded, X.half())
    assert loaded.backward is None


def test_every_kind_of_argument_arrives(load):
    source = "// kerneleval-launch: gelu global=1 local=1\n// kerneleval-scratch: gelu 8*M\n" + (
        "kernel void gelu(global const float *x, long flag, long k, double eps, global const long *sizes,\n"
        "                 global const void *none, global const long *index, global const uchar *mask,\n"
        "                 global double *out, global long *count, global long *scratch, long M, long N) {\n"
        "    scratch[1] = 7;\n"
        "    double all[] = {x[1], flag, k, eps, sizes[0], sizes[1], none == 0, index[0], mask[1],\n"
        "                    M * 10 + N, scratch[1]};\n"
        "    for (int i = 0; i < 11; i++) out[i] = all[i];\n    *count = 11;\n}\n"
    )
    outputs = [OutputSpec(shape=(11,), dtype="float64"), OutputSpec(shape=(), dtype="int64")]
    args = [X, True, -(2**40), 1e-5, [3, 4], None, torch.tensor([2**33]), torch.tensor([False, True])]
    values, count = load(source, "opencl").forward(args, outputs, DIMS)
    assert values.tolist() == [1.0, 1.0, -(2.0**40), 1e-5, 3.0, 4.0, 1.0, 2.0**33, 1.0, 23.0, 7.0]
    assert count.item() == 11


@pytest.mark.parametrize("given", ["text", {}])
def test_unknown_kinds_of_argument_are_unsupported(load, given):
    with pytest.raises(NotImplementedError, match=f"of type {type(given).__name__}"):
        call(load(HEAD + scale("1"), "opencl"), X, given)


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded", "offset"])
def test_arguments_are_made_contiguous(load, layout):
    x = {
        "transposed": torch.arange(6.0).reshape(3, 2).t(),
        "sliced": torch.arange(12.0).reshape(2, 6)[:, ::2],
        "expanded": torch.arange(3.0).expand(2, 3),
        "offset": torch.arange(7.0)[1:].reshape(2, 3),
    }[layout]
    before = x.clone()
    assert torch.equal(call(load(HEAD + scale("2"), "opencl"), x), before * 2)
    assert torch.equal(x, before)


def test_half_types_go_through_their_bits(load):
    source = (
        HEAD.replace("float32", "float16")
        + HEAD.replace("float32", "bfloat16")
        + (
            "kernel void gelu_float16(global const half *x, global half *out, long M, long N) {\n"
            "    const long i = get_global_id(0);\n    vstore_half(vload_half(i, x) * 2, i, out);\n}\n"
            "kernel void gelu_bfloat16(global const ushort *x, global ushort *out, long M, long N) {\n"
            "    const long i = get_global_id(0);\n"
            "    out[i] = as_uint(as_float((uint)x[i] << 16) * 2) >> 16;\n}\n"
        )
    )
    loaded = load(source, "opencl")
    for dtype in ("float16", "bfloat16"):
        x = X.to(getattr(torch, dtype))
        assert torch.equal(call(loaded, x, out=OutputSpec(shape=(2, 3), dtype=dtype)), x * 2)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 4097), (33, 512)])
@pytest.mark.parametrize("poison", [False, True])
def test_steps_share_scratch_and_groups_share_memory(load, example, shape, poison):
    x = torch.randn(shape)
    if poison:
        x[-1, shape[1] // 2] = float("nan")
    loaded = load(example("opencl-steps"), "opencl", names=("amax",))
    out = OutputSpec(shape=shape[:1], dtype="float32")
    got = loaded.forward([x], [out], {"M": shape[0], "N": shape[1]})
    torch.testing.assert_close(got, x.amax(-1), rtol=0, atol=0, equal_nan=True)
    assert loaded.launches() == {"part": 1, "whole": 1}


def test_buffers_are_mapped_where_memory_is_not_known_to_be_shared(load, monkeypatch):
    at = opencl_runtime.opened()
    assert at.shares, "of no other platform is it known"
    monkeypatch.setattr(opencl_runtime, "opened", lambda: dataclasses.replace(at, shares=False))
    mapped = []
    enqueue = pyopencl.enqueue_map_buffer
    monkeypatch.setattr(pyopencl, "enqueue_map_buffer", lambda *a, **k: mapped.append(a[1]) or enqueue(*a, **k))
    assert torch.equal(call(load(HEAD + scale("2"), "opencl"), X), X * 2)
    assert len(mapped) == 2


def test_an_empty_tensor_launches_nothing(load):
    out = OutputSpec(shape=(0, 3), dtype="float32")
    got = call(load(HEAD + scale("2"), "opencl"), torch.empty(0, 3), out=out, dims={"M": 0, "N": 3})
    assert got.shape == (0, 3)


def test_kernels_are_counted_only_when_watched_and_do_nothing_when_muted(load):
    loaded = load(HEAD + scale("2"), "opencl")
    assert torch.equal(call(loaded, X), X * 2)
    loaded.watch(False)
    call(loaded, X)
    assert loaded.launches() == {"gelu_float32": 1}
    loaded.watch(True)
    loaded.mute(True)
    x = torch.full((2, 3), 1e9)
    assert not torch.equal(call(loaded, x), x * 2)
    assert loaded.launches() == {"gelu_float32": 2}
    loaded.mute(False)
    assert torch.equal(call(loaded, x), x * 2)


def test_the_compiler_names_file_and_line_and_nothing_of_this_machine(load):
    with pytest.raises(BuildError) as caught:
        load(HEAD + scale("nosuch(x[i])"), "opencl")
    assert "candidate.cl:4:" in caught.value.log
    assert "nosuch" in caught.value.log
    assert "/" not in caught.value.log


def test_includes_are_found(make, tmp_path):
    source = HEAD + '#include "factor.h"\n' + scale("FACTOR")
    candidate = make(source, "opencl", ("factor.h", "#define FACTOR 5\n"))
    language = languages.find("opencl")
    language.build(candidate, tmp_path, "opencl", "")
    loaded = language.load(candidate, tmp_path, "opencl", names=("gelu",))
    assert torch.equal(call(loaded, X), X * 5)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (scale("2"), "candidate.cl: no kerneleval-launch line"),
        (
            HEAD.replace("gelu", "other") + scale("2"),
            "kerneleval-launch names other_float32; kernels there are gelu_float32",
        ),
        ("// kerneleval-flags: -I/etc\n" + HEAD + scale("2"), "flag '-I/etc' is not allowed for opencl"),
        (HEAD + "float cblas_sdot(int n);\n" + scale("cblas_sdot(3)"), "cblas_sdot"),
        (HEAD + "int system(constant char *s);\n" + scale('system("true")'), "system"),
        (HEAD + "int system(constant char *s) __attribute__((weak));\n" + scale('system("true")'), "system"),
        (HEAD + "#pragma redefine_extname other system\nint other(int s);\n" + scale("other(1)"), "system"),
        (HEAD + scale("1; int (*other)(int) = (int (*)(int))(long)x[0]"), "pointers to functions are not allowed"),
    ],
)
def test_what_cannot_be_built_is_named(load, source, said):
    with pytest.raises(BuildError) as caught:
        load(source, "opencl")
    assert said in str(caught.value)


def test_flags_reach_the_compiler(load):
    source = "// kerneleval-flags: -DFACTOR=3 -cl-mad-enable -cl-std=CL1.1\n" + HEAD + scale("FACTOR")
    assert torch.equal(call(load(source, "opencl"), X), X * 3)


def test_a_kernel_with_other_arguments_is_told_what_a_call_has(load):
    source = HEAD + "kernel void gelu_float32(global const float *x, global float *out) { out[0] = x[0]; }\n"
    with pytest.raises(RuntimeError, match="takes 2 arguments, and a call has 4"):
        call(load(source, "opencl"), X)
    source = HEAD + "kernel void gelu_float32(global const float *x, global float *out, int M, int N) { out[0] = M; }\n"
    with pytest.raises(Exception, match="INVALID_ARG_SIZE"):
        call(load(source, "opencl"), X)


def test_sizes_that_cannot_be_launched_raise(load):
    source = HEAD.replace("local=1", "local=4") + scale("2")
    with pytest.raises(ValueError, match="is no multiple of local"):
        call(load(source, "opencl"), X)


def test_no_entry_point_is_a_load_error(load):
    with pytest.raises(LoadError, match="no forward entry point: looked for other_"):
        load(HEAD + scale("2"), "opencl", names=("other",))


def test_other_devices_are_refused(make, tmp_path):
    with pytest.raises(UsageError, match="opencl candidates do not run on device 'cpu'"):
        languages.find("opencl").build(make(HEAD + scale("2"), "opencl"), tmp_path, "cpu", "")


@pytest.mark.parametrize(
    "text",
    [
        '__asm__ volatile("call system");',
        '__asm("nop");',
        '#define P(a, b) a##b\nP(__as, m__)("nop");',
        '#undef __asm__\n__asm__("nop");',
        '# /* x */ define/**/__asm__ __asm__\n__asm__("nop");',
        '#un\\\ndef __as\\\nm__\n__asm__("nop");',
        '%:undef __asm__\n__asm__("nop");',
        '#un\\\v\ndef __asm__\n__asm__("nop");',
        '#un\\\rdef __asm__\n__asm__("nop");',
        '#define inline_assembly_is_not_taken __asm__\n__asm__("nop");',
        'constant char *from = "/*";\n#undef __asm__\nconstant char *to = "*/"; __asm__("nop");',
    ],
)
@pytest.mark.parametrize("define", ["", "-D__asm__=__asm__", "-Dinline_assembly_is_not_taken=__asm__"])
def test_inline_assembly_is_refused(load, text, define):
    source = f"// kerneleval-flags: {define}\n" + HEAD + scale("2").replace("{\n", "{\n" + text + "\n")
    with pytest.raises(BuildError, match=r"inline_assembly_is_not_taken|defines or undefines one of asm"):
        load(source, "opencl")


@pytest.mark.parametrize(
    "text",
    [
        '#include "PATH"',
        "#include <PATH>",
        '/* a\n b */ # /* c */ include/**/"PATH"',
        '#inc\\\nlude "PATH"',
        '%:include_next "PATH"',
        '#define NAME "PATH"\n#include NAME',
        '#import "PATH"',
        'constant int one = 1;\r#include "PATH"',
    ],
)
def test_no_file_but_the_candidates_own_is_included(load, tmp_path, text):
    """Another one could undefine what keeps assembly out."""
    (tmp_path / "other.h").write_text("#undef __asm__\n")
    source = HEAD + text.replace("PATH", f"{tmp_path}/other.h") + "\n"
    with pytest.raises(BuildError, match="which is none of the candidate's files"):
        load(source + scale("2").replace("{\n", '{\n    __asm__("nop");\n'), "opencl")


def test_a_zero_character_is_refused(load):
    with pytest.raises(BuildError, match="it has a zero character"):
        load(HEAD + "#undef\0__asm__\n" + scale("2"), "opencl")


def test_a_comment_on_an_include_is_none(load):
    source = HEAD + "// #include <all.h>\n/* or\n * #include <more.h>\n */\n" + scale("2")
    assert torch.equal(call(load(source, "opencl"), X), X * 2)


def test_a_comment_on_assembly_is_none(load):
    source = HEAD + "// no #define, no __asm__: asm would be refused\n" + scale("2")
    assert torch.equal(call(load(source, "opencl"), X), X * 2)


def test_building_runs_nothing_and_leaves_nothing(make, tmp_path):
    """A constructor would run when what was compiled is loaded: in a worker, after it was sealed."""
    source = HEAD + scale("2") + "__attribute__((constructor)) void early(void) { *(volatile private int *)8 = 1; }\n"
    language = languages.find("opencl")
    language.build(make(source, "opencl"), tmp_path / "build", "opencl", "")
    assert list((tmp_path / "build").iterdir()) == []
