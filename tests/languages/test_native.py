"""C++ candidates and the native ABI: what is passed, how dtypes choose symbols, what errors say."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import torch

from kerneleval import languages
from kerneleval.languages import BuildError, LoadError, OutputSpec, cpp
from kerneleval.languages.binaries.elf import foreign_names, loader_names
from kerneleval.languages.common import compiler
from kerneleval.records import InfrastructureError, UsageError

X = torch.arange(6.0).reshape(2, 3)
OUT = OutputSpec(shape=(2, 3), dtype="float32")
DIMS = {"M": 2, "N": 3}
HEAD = "#include <cstdint>\n"


def scale(factor: str, name: str = "gelu_float32", element: str = "float") -> str:
    return (
        f'extern "C" int {name}(const {element} *x, {element} *out, int64_t M, int64_t N, void *stream) {{\n'
        f"    for (int64_t i = 0; i < M * N; i++) out[i] = x[i] * {factor};\n"
        "    return stream != nullptr;\n}\n"
    )


def call(loaded, *args, out=OUT, dims=DIMS):
    return loaded.forward(list(args), [out], dims)


@pytest.mark.parametrize(
    ("names", "fields", "factor"),
    [
        ({"gelu_float32": 2, "gelu": 3, "run_float32": 4}, {}, 2),
        ({"gelu": 3, "other": 1}, {}, 3),
        ({"run_float32": 4, "run": 5}, {}, 4),
        ({"run": 5}, {}, 5),
        ({"gelu_float32": 2, "mine_float32": 6}, {"entry": "mine"}, 6),
        ({"gelu_float32": 2, "mine": 7}, {"entry": "mine"}, 7),
    ],
)
def test_symbols_in_order(load, names, fields, factor):
    source = HEAD + "".join(scale(str(k), name) for name, k in names.items())
    assert torch.equal(call(load(source, "cpp", **fields), X), X * factor)


def test_every_kind_of_argument_arrives(load):
    source = HEAD + (
        'extern "C" int gelu(const float *x, int64_t flag, int64_t k, double eps, const int64_t *sizes,\n'
        "                    const char *mode, const void *none, const int64_t *index, double *out, int64_t *count,\n"
        "                    int64_t M, int64_t N, void *stream) {\n"
        "    double all[] = {x[1], (double)flag, (double)k, eps, (double)sizes[0], (double)sizes[1],\n"
        "                    (double)mode[0], none == nullptr ? 1.0 : 0.0, (double)index[0], (double)(M * 10 + N)};\n"
        "    for (int i = 0; i < 10; i++) out[i] = all[i];\n    *count = 10;\n    return 0;\n}\n"
    )
    outputs = [OutputSpec(shape=(10,), dtype="float64"), OutputSpec(shape=(), dtype="int64")]
    args = [X, True, -(2**40), 1e-5, [3, 4], "z", None, torch.tensor([2**33])]
    values, count = load(source, "cpp").forward(args, outputs, DIMS)
    assert values.tolist() == [1.0, 1.0, -(2.0**40), 1e-5, 3.0, 4.0, 122.0, 1.0, 2.0**33, 23.0]
    assert count.item() == 10
    assert count.shape == ()


def test_unknown_kinds_of_argument_are_unsupported(load):
    with pytest.raises(NotImplementedError, match="type dict"):
        call(load(HEAD + scale("1"), "cpp"), X, {})


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded"])
def test_arguments_are_made_contiguous(load, layout):
    x = {
        "transposed": torch.arange(6.0).reshape(3, 2).t(),
        "sliced": torch.arange(12.0).reshape(2, 6)[:, ::2],
        "expanded": torch.arange(3.0).expand(2, 3),
    }[layout]
    before = x.clone()
    assert torch.equal(call(load(HEAD + scale("2"), "cpp"), x), before * 2)
    assert torch.equal(x, before)


def test_outputs_are_fresh(load):
    loaded = load(HEAD + scale("2"), "cpp")
    first, second = call(loaded, X), call(loaded, X)
    assert first.data_ptr() != second.data_ptr()
    assert first.is_contiguous()


def test_dtypes_choose_symbols(load):
    loaded = load(HEAD + scale("2") + scale("3", "gelu_float64", "double"), "cpp")
    out = OutputSpec(shape=(2, 3), dtype="float64")
    assert torch.equal(call(loaded, X), X * 2)
    assert torch.equal(call(loaded, X.double(), out=out), X.double() * 3)
    with pytest.raises(NotImplementedError, match="no entry point for bfloat16: looked for gelu_bfloat16"):
        call(loaded, X.bfloat16())


def test_a_plain_name_means_float32_or_no_floating_tensor(load):
    loaded = load(HEAD + scale("2", "gelu", "int64_t"), "cpp")
    out = OutputSpec(shape=(2, 3), dtype="int64")
    assert torch.equal(call(loaded, X.long(), out=out), X.long() * 2)
    with pytest.raises(NotImplementedError, match="float16"):
        call(loaded, X.half())


def test_the_first_floating_tensor_names_the_dtype(load):
    source = HEAD + (
        'extern "C" int gelu_float64(const int64_t *i, const double *x, double *out, int64_t M, int64_t N, void *) {\n'
        "    for (int64_t k = 0; k < M * N; k++) out[k] = x[k] + i[0];\n    return 0;\n}\n"
    )
    out = OutputSpec(shape=(2, 3), dtype="float64")
    assert torch.equal(call(load(source, "cpp"), torch.tensor([5]), X.double(), out=out), X.double() + 5)


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ("1", NotImplementedError, "returned 1: it declares"),
        ("7", RuntimeError, "returned 7"),
        ("-1", RuntimeError, "-1"),
    ],
)
def test_return_codes(load, returned, error, message):
    source = HEAD + f'extern "C" int gelu(const float *, float *, int64_t, int64_t, void *) {{ return {returned}; }}'
    with pytest.raises(error, match=message):
        call(load(source, "cpp"), X)


def test_backward_symbols(load):
    backward = (
        'extern "C" int {0}(const float *g, const float *x, float *dx, int64_t M, int64_t N, void *) {{\n'
        "    for (int64_t i = 0; i < M * N; i++) dx[i] = g[i] * x[i];\n    return 0;\n}}\n"
    )
    for name, fields in (
        ("gelu_backward_float32", {}),
        ("gelu_backward", {}),
        ("mine_backward_float32", {"entry": "gelu", "backward_entry": "mine_backward"}),
    ):
        loaded = load(HEAD + scale("2") + backward.format(name), "cpp", **fields)
        (grad,) = loaded.backward([X], [X], [OUT], DIMS)
        assert torch.equal(grad, X * X)


def test_without_backward_there_is_no_autograd(load):
    loaded = load(HEAD + scale("2"), "cpp")
    assert loaded.backward is None
    assert not loaded.autograd
    with pytest.raises(NotImplementedError, match="no backward entry point: looked for gelu_backward"):
        loaded.forward([X.requires_grad_()], (), DIMS)
    with pytest.raises(LoadError, match="module problems need a Python file"):
        loaded.make_module([])


def test_calls_are_counted_and_muted(load):
    loaded = load(HEAD + scale("2"), "cpp")
    call(loaded, X)
    loaded.watch(False)
    call(loaded, X)
    assert loaded.launches() == {"gelu_float32": 1}
    loaded.watch(True)
    loaded.mute(True)
    zero = loaded.forward([torch.empty(0, 3)], [OutputSpec(shape=(0, 3), dtype="float32")], {"M": 0, "N": 3})
    assert zero.shape == (0, 3)
    assert loaded.launches() == {"gelu_float32": 2}


FOREIGN = (
    HEAD
    + """#include <cmath>
#include <dlfcn.h>
#include <stdexcept>
#include <vector>
extern "C" void sgemm_();
extern "C" __attribute__((weak)) void absent();
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *) {
    std::vector<float> v(M);
    #pragma omp parallel for
    for (int64_t i = 0; i < M; i++) v.at(i) = std::exp(x[i]);
    if (absent) absent();
    CALL
    return v[0] > 0;
}
"""
)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("", ("absent",)),
        ("sgemm_();", ("absent", "sgemm_")),
        ('dlsym(RTLD_DEFAULT, "x");', ("absent", "dlsym")),
    ],
)
def test_functions_of_others_are_named(make, tmp_path, call, wanted):
    candidate = make(FOREIGN.replace("CALL", call), "cpp")
    languages.find("cpp").build(candidate, tmp_path, "cpu", "")
    assert languages.find("cpp").foreign(candidate, tmp_path) == wanted


def test_ordinary_code_refers_to_nobody(make, tmp_path):
    for number, source in enumerate(
        (HEAD + scale("2"), FOREIGN.replace("if (absent) absent();", "").replace("CALL", ""))
    ):
        candidate = make(source, "cpp")
        languages.find("cpp").build(candidate, tmp_path / str(number), "cpu", "")
        assert languages.find("cpp").foreign(candidate, tmp_path / str(number)) == ()


def test_a_libstdcxx_that_is_linked_in_is_no_library_of_others(tmp_path):
    source = """#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>
extern "C" int f(int n) { std::vector<int> v(n); if (n > 9) throw std::runtime_error("no"); return v.at(3); }
"""
    (tmp_path / "one.cpp").write_text(source)
    command = [os.environ.get("CXX", "g++"), "-shared", "-fPIC", "-static-libstdc++", "one.cpp", "-o", "one.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert foreign_names(tmp_path / "one.so") == []


def test_no_entry_point_names_what_there_is(load):
    with pytest.raises(LoadError) as caught:
        load(HEAD + scale("2", "other"), "cpp")
    assert "looked for gelu_<dtype> and gelu, run_<dtype> and run; exported are other" in str(caught.value)
    with pytest.raises(LoadError, match='is extern "C" missing at _Z12gelu_float32'):
        load(HEAD + scale("2").replace('extern "C" ', ""), "cpp")
    with pytest.raises(LoadError, match="no backward entry point: looked for nope_<dtype>"):
        load(HEAD + scale("2"), "cpp", backward_entry="nope")


def test_compile_errors_carry_the_compilers_words(load):
    with pytest.raises(BuildError) as caught:
        load(HEAD + scale("2") + "int broken( {", "cpp")
    assert "candidate.cpp:" in caught.value.log
    assert "error:" in caught.value.log


def test_compiler_logs_are_bounded(load):
    with pytest.raises(BuildError) as caught:
        load("\n".join(f'#warning "{"x" * 200} {i}"' for i in range(5000)) + "\n#error end", "cpp")
    assert len(caught.value.log.encode()) <= 8192


def test_who_asks_where_libraries_are_is_told(tmp_path):
    """From such an address the loader's list is found, and in it every function."""
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(
        "void *backtrace(void **, int); unsigned long getauxval(unsigned long); int puts(const char *);\n"
        "void f(void **at) { backtrace(at, 1); getauxval(3); puts(0); }"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    data = bytearray(library.read_bytes())
    assert loader_names(library) == (["backtrace", "getauxval"] if data[18:20] == b"\x3e\x00" else ["backtrace"])
    data[18:20] = b"\xb7\x00"  # AArch64, where getauxval tells what the processor can
    library.write_bytes(data)
    assert loader_names(library) == ["backtrace"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/proc/self/maps", ["/proc/self/maps"]),
        ("/proc/%d/map_files", ["/proc/%d/map_files"]),
        ("/proc/self/task/1/mem", ["/proc/self/task/1/mem"]),
        ("/proc/thread-self/auxv", ["/proc/thread-self/auxv"]),
        ("/proc/cpuinfo", []),
        ("/proc/meminfo", []),
        ("/proc/self/status", []),
        ("maps", []),
    ],
)
def test_who_reads_where_libraries_are_is_told(tmp_path: Path, text: str, found: list[str]):
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(f'int puts(const char *); void f(void) {{ puts("{text}"); }}')
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert loader_names(library) == found


def test_an_error_in_a_header_begins_with_the_line_that_needs_it():
    """Of templates compilers say first where they stand, which no candidate can mend."""
    log = (
        "In file included from /usr/include/c++/12/algorithm:60:\n"
        "/usr/include/c++/12/bits/stl_algo.h:1849:25:   required from 'void std::sort(_Iter, _Iter)'\n"
        "candidate.cpp:9:14:   required from here\n"
        "/usr/include/c++/12/bits/predefined_ops.h:45:23: error: no match for 'operator<'\n"
    )
    assert compiler._own_line_first(log) == f"candidate.cpp:9: error: no match for 'operator<'\n{log}"
    warned = "candidate.cpp:3:9:   required from here\n/usr/include/x.h:7:5: warning: comparison of signs\n" + log
    assert compiler._own_line_first(warned).startswith("candidate.cpp:9: error: ")
    own = "candidate.cpp:8:6: error: no match for 'operator[]'\n" + log
    assert compiler._own_line_first(own) == own
    assert compiler._own_line_first("/usr/include/x.h:1:1: error: no\n") == "/usr/include/x.h:1:1: error: no\n"


def test_undefined_symbols_are_load_errors(load):
    source = HEAD + 'extern "C" int absent();\nextern "C" int gelu() { return absent(); }'
    with pytest.raises(LoadError, match="undefined symbol: absent"):
        load(source, "cpp")


def test_a_build_that_was_not_made_is_a_load_error(make, tmp_path):
    with pytest.raises(LoadError, match="was not built"):
        languages.find("cpp").load(make(HEAD, "cpp"), tmp_path, "cpu")


def test_building_does_not_run_the_candidate(make, tmp_path):
    marker = tmp_path / "ran"
    source = HEAD + (
        '#include <cstdio>\n__attribute__((constructor)) static void start() { fclose(fopen("'
        + str(marker)
        + '", "w")); }\n'
    )
    candidate = make(source + scale("1"), "cpp")
    language = languages.find("cpp")
    language.build(candidate, tmp_path / "b", "cpu", "")
    assert not marker.exists()
    language.load(candidate, tmp_path / "b", "cpu", names=("gelu",))
    assert marker.exists()


def test_more_files_are_compiled_and_included(load):
    main = '#include "sub/part.h"\n' + HEAD + "int64_t two();\n" + scale("two() * THREE")
    part = ("sub/part.h", "#define THREE 3\n")
    other = ("other.cpp", HEAD + "int64_t two() { return 2; }")
    assert torch.equal(call(load(main, "cpp", part, other), X), X * 6)


def test_a_failed_build_leaves_no_library(make, tmp_path):
    with pytest.raises(BuildError):
        languages.find("cpp").build(make("nonsense", "cpp"), tmp_path, "cpu", "")
    assert list(tmp_path.iterdir()) == []


def test_a_build_leaves_only_the_library(make, tmp_path):
    languages.find("cpp").build(make(HEAD + scale("1"), "cpp", ("sub/x.h", "")), tmp_path / "b", "cpu", "")
    (left,) = (tmp_path / "b").iterdir()
    assert left.is_file()


# -- flags ------------------------------------------------------------------------------------------------------------

GOOD = [
    "-O0", "-O2", "-Ofast", "-ffast-math", "-fno-fast-math", "-funroll-loops", "-fno-tree-vectorize", "-fopenmp-simd",
    "-ffp-contract=off", "-fvect-cost-model=unlimited", "-mavx2", "-mprefer-vector-width=512", "-march=x86-64-v2",
    "-DNAME", "-DNAME=3.5f", "-std=c++17", "-std=gnu++23", "-lm", "-lgomp",
]  # fmt: skip
BAD = [
    "-fplugin=./evil.so", "-fplugin-arg-x=1", "-fuse-ld=/tmp/x", "-fprofile-use=/etc/passwd", "-fprofile-generate",
    "-fdump-tree-all", "-fmodule-mapper=|sh", "-fsanitize=address", "-fself-test=/x", "-fopt-info-vec=/tmp/x",
    "-fsave-optimization-record", "-fstack-usage", "-ftest-coverage", "-fdiagnostics-format=json-file",
    "-wrapper", "-B/tmp", "-specs=x", "-I/etc", "-include", "-include/etc/passwd", "-imacros", "-o", "-o/tmp/x",
    "@args", "/etc/passwd", "evil.o", "-Wl,-rpath,/tmp", "-Xlinker", "-Wa,-x", "-L/tmp", "-lopenblas", "-l:x.so",
    "-mllvm", "-DNAME=$(id)", "-DX=a/b", "-shared", "-static", "-E", "-S", "-c", "-v", "--version", "-O3;id",
    "-march=native`id`",
]  # fmt: skip


@pytest.mark.parametrize("flag", GOOD)
def test_useful_flags_are_allowed(make, flag):
    assert compiler.candidate_flags(make(f"// kerneleval-flags: {flag} -O1\n", "cpp"), "g++") == [flag, "-O1"]


@pytest.mark.parametrize("flag", BAD)
def test_dangerous_flags_are_refused(make, flag):
    with pytest.raises(BuildError, match="is not allowed for g\\+\\+; allowed are") as caught:
        compiler.candidate_flags(make(f"\n// kerneleval-flags: -O1 {flag}\n", "cpp"), "g++")
    assert "candidate.cpp:2" in str(caught.value)
    assert repr(flag) in str(caught.value)


def test_flags_take_effect_and_come_last(load):
    source = "// kerneleval-flags: -DFACTOR=5 -std=c++17\n" + HEAD + scale("(FACTOR + (__cplusplus > 201703L))")
    assert torch.equal(call(load(source, "cpp"), X), X * 5)


def test_every_default_flag_of_g_plus_plus_works(make, tmp_path):
    for flag in GOOD:
        languages.find("cpp").build(make(f"// kerneleval-flags: {flag}\n", "cpp"), tmp_path, "cpu", "")


def test_a_misspelt_header_is_a_build_error(make, tmp_path):
    with pytest.raises(BuildError, match="unknown header 'kerneleval-flag'"):
        languages.find("cpp").build(make("// kerneleval-flag: -O1\n", "cpp"), tmp_path, "cpu", "")


# -- the compiler itself ----------------------------------------------------------------------------------------------


def test_a_missing_compiler_is_no_fault_of_the_candidate(make, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    language = languages.find("cpp")
    assert "install g++" in language.missing("cpu")
    with pytest.raises(InfrastructureError, match="no-such-compiler"):
        language.build(make(HEAD, "cpp"), tmp_path, "cpu", "")


def test_a_slow_compilation_is_killed_with_its_children(make, tmp_path, monkeypatch):
    fake = tmp_path / "slow++"
    fake.write_text(f"#!/bin/sh\necho working\nsleep 77 & echo $! > {tmp_path}/child\nwait\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    monkeypatch.setattr(cpp, "TIMEOUT_S", 1.0)
    started = time.monotonic()
    with pytest.raises(BuildError, match=r"did not end within 1 s and was killed\nworking"):
        languages.find("cpp").build(make(HEAD, "cpp"), tmp_path / "b", "cpu", "")
    assert time.monotonic() - started < 20
    child = (tmp_path / "child").read_text().strip()
    stat = Path(f"/proc/{child}/stat")
    for _ in range(100):  # the child is reaped by whoever inherits it
        try:
            if stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                break
        except FileNotFoundError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the compiler's child outlived it")


def test_a_flood_of_output_does_not_block(tmp_path):
    log = compiler.run_compiler(["/bin/sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' x"], tmp_path, 60)
    assert log == "x" * 8192


def test_the_compiler_sees_no_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "1")
    assert "SECRET_TOKEN" not in compiler.run_compiler([shutil.which("env") or "env"], tmp_path, 10)


def test_signals_are_named(tmp_path):
    with pytest.raises(BuildError, match="signal SIGSEGV"):
        compiler.run_compiler(["/bin/sh", "-c", "kill -SEGV $$"], tmp_path, 10)


def test_a_compiler_that_computes_for_too_long_is_told(tmp_path):
    with pytest.raises(BuildError, match="computed for more than 1 s, which is the limit"):
        compiler.run_compiler(["/bin/sh", "-c", "sleep 0.3; sh -c 'while :; do :; done'"], tmp_path, 60, cpu_s=1)
    assert compiler.run_compiler(["/bin/sh", "-c", "echo done"], tmp_path, 60, cpu_s=1) == "done\n"


def test_the_toolchain_names_compiler_flags_and_processor():
    text = languages.find("cpp").toolchain("cpu", "")
    assert "-march=native" in text
    assert "flags" in text or "Features" in text or len(text.splitlines()) > 3


def test_wrong_device(make, tmp_path):
    with pytest.raises(UsageError, match="cpp candidates do not run on device 'cuda:0'"):
        languages.find("cpp").build(make(HEAD, "cpp"), tmp_path, "cuda:0", "sm_90")
    with pytest.raises(UsageError, match="output dtype 'half' is unknown"):
        OutputSpec(shape=(1,), dtype="half")
