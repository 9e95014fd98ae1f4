"""What kernels take, read from device binaries, beside what NVIDIA's own tools print."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.judge.checks.code import built, resources_finding, sent
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.languages.binaries import elf
from kerneleval.languages.binaries.kernels import Kernel, cuda_kernels
from kerneleval.records import Candidate
from kerneleval.worker.observing import triton_binaries

triton = pytest.importorskip("triton", reason="Triton, with NVIDIA's assembler, is not installed (pip install triton)")

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"

PTX = """.version 8.0
.target sm_ARCH
.address_size 64

.visible .entry simple(.param .u64 y)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [y];
    st.global.u32 [%rd1], 7;
    ret;
}

.visible .entry roomy(.param .u64 y, .param .u64 at)
{
    .shared .align 4 .b8 tile[3072];
    .local .align 16 .b8 array[272];
    .reg .b64 %rd<6>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [at];
    mov.u64 %rd3, array;
    add.u64 %rd3, %rd3, %rd2;
    st.local.u32 [%rd3], 1;
    mov.u64 %rd4, tile;
    add.u64 %rd4, %rd4, %rd2;
    st.shared.u32 [%rd4], 2;
    bar.sync 0;
    ld.local.u32 %r1, [array+16];
    ld.shared.u32 %r2, [tile+64];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def assembled(folder: Path, arch: int) -> Path:
    source, binary = folder / f"k{arch}.ptx", folder / f"k{arch}.cubin"
    source.write_text(PTX.replace("ARCH", str(arch)))
    subprocess.run([TOOLS / "ptxas", f"-arch=sm_{arch}", "-o", binary, source], check=True, capture_output=True)
    return binary


def printed(binary: Path) -> dict[str, tuple[int, int, int]]:
    """Registers, stack and shared memory as ``cuobjdump`` prints them."""
    done = subprocess.run([TOOLS / "cuobjdump", "-res-usage", binary], check=True, capture_output=True, text=True)
    rows = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", done.stdout)
    return {name: (int(registers), int(stack), int(shared)) for name, registers, stack, shared in rows}


@pytest.mark.parametrize("arch", [75, 80, 90])
def test_the_figures_are_those_of_cuobjdump(tmp_path: Path, arch: int) -> None:
    binary = assembled(tmp_path, arch)
    found = {k.name: (k.registers, k.spilled, k.shared_bytes) for k in cuda_kernels(binary.read_bytes())}
    assert set(found) == {"simple", "roomy"}
    assert found == printed(binary)
    assert found["roomy"][1] >= 272
    assert found["roomy"][2] >= 3072


def test_binaries_within_a_library_are_found(tmp_path: Path) -> None:
    inner = assembled(tmp_path, 80).read_bytes()
    host = b"\x7fELF\x02\x01\x01" + b"\0" * 200
    assert cuda_kernels(host + inner) == cuda_kernels(inner)
    assert cuda_kernels(host) == ()
    assert cuda_kernels(b"") == ()


def test_broken_binaries_have_fewer_kernels_and_do_no_harm(tmp_path: Path) -> None:
    whole = assembled(tmp_path, 80).read_bytes()
    generator = random.Random(7)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(generator.randrange(1, 40)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        for kernel in cuda_kernels(bytes(data[: generator.randrange(len(data) + 1)])):
            assert isinstance(kernel.name, str)


def test_names_that_all_are_long_fill_no_memory() -> None:
    """Three thousand sections and as many symbols whose names are one megabyte, as a worker may send them."""
    count, names = 3000, b"A" * (1 << 20)
    tables = 64 + 64 * count
    header = b"\x7fELF\x02\x01".ljust(18, b"\0") + b"\xbe\x00"
    header = header.ljust(40, b"\0") + struct.pack("<Q", 64) + b"\0" * 10 + struct.pack("<HHH", 64, count, 0)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, tables, len(names), 0, 0, 0, 0)
    symbols = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, tables, 24 * count, 0, 0, 0, 0)
    data = header.ljust(64, b"\0") + strings + symbols * (count - 1) + names
    tracemalloc.start()
    try:
        assert cuda_kernels(data) == ()
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


def test_symbols_of_many_tables_copy_no_names() -> None:
    """Each of a thousand tables names the whole file: copies of that took minutes in the judge."""
    count, names = 1000, b"A" * (8 << 20)
    tables = 64 + 64 * count
    header = b"\x7fELF\x02\x01".ljust(18, b"\0") + b"\xbe\x00"
    header = header.ljust(40, b"\0") + struct.pack("<Q", 64) + b"\0" * 10 + struct.pack("<HHH", 64, count, 0)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, tables, len(names), 0, 0, 0, 0)
    empty = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, tables, 0, 0, 0, 0, 0)
    one = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, tables, 24, 0, 0, 0, 0)
    data = header.ljust(64, b"\0") + strings + empty * (count - 2) + one + names
    tracemalloc.start()
    try:
        assert len(list(elf.symbols(data, 2))) == 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


KERNELS = """
import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget


@triton.jit
def scaled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)


@triton.jit
def product(a, b, c, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = at[:, None] * BLOCK + at[None, :]
    tl.store(c + place, tl.dot(tl.load(a + place), tl.load(b + place)))


def compiled(kernel, signature, block, warps):
    source = triton.compiler.ASTSource(kernel, signature | {"BLOCK": "constexpr"}, {"BLOCK": block})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


compiled(scaled, {"x": "*fp32", "y": "*fp32", "n": "i32"}, 256, 4)
compiled(scaled, {"x": "*fp32", "y": "*fp32", "n": "i32"}, 4096, 1)
print(compiled(product, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, 64, 4).metadata.shared)
"""


def test_what_triton_keeps_in_its_cache_is_told(tmp_path: Path) -> None:
    script, cache = tmp_path / "kernels.py", tmp_path / "worker" / "triton"
    script.write_text(KERNELS)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment | {"TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = json.loads(json.dumps(triton_binaries(str(cache), 1 << 21)))
    assert len(files) == 3
    assert triton_binaries(str(cache), 100) == []
    finding = resources_finding(sent(files))
    assert finding.level == "info"
    product, scaled = finding.evidence.kernels
    assert (product.kernel, product.binaries) == ("product", 1)
    dynamic, (least, most) = int(done.stdout), product.shared_bytes
    assert dynamic > 0 and least == most == dynamic + 1024  # which CUDA keeps for itself from sm_90 on
    assert (scaled.kernel, scaled.binaries, scaled.shared_bytes) == ("scaled", 2, (0, 0))
    assert scaled.registers[0] < scaled.registers[1]
    assert f"product: {product.registers[0]} registers a thread, {most} bytes of shared memory" in finding.message
    assert "scaled (2 binaries): " in finding.message
    assert_hash_is_of_code(base64.b64decode(files[0]["data"]))


def assert_hash_is_of_code(binary: bytes) -> None:
    """Every worker has the source in another folder, which Triton's debugging tables name."""
    places = {
        name: slice(offset, offset + size)
        for name, (_, offset, size, _, _) in zip(elf.section_names(binary), elf.sections(binary), strict=True)
    }

    def changed(name: str) -> bytes:
        data = bytearray(binary)
        data[places[name]] = bytes(byte ^ 1 for byte in data[places[name]])
        return bytes(data)

    text = next(name for name in places if name.startswith(".text."))
    for name in (".debug_line", ".nv_debug_ptx_txt", ".rela.debug_line"):
        assert changed(name) != binary
        assert elf.code_digest(changed(name)) == elf.code_digest(binary), name
    for name in (text, ".nv.info", ".strtab", ".symtab"):
        assert elf.code_digest(changed(name)) != elf.code_digest(binary), name
    loaded = bytearray(binary)  # the flags of a debugging section: loaded, and run
    (start,), (size,) = struct.unpack_from("<Q", binary, 40), struct.unpack_from("<H", binary, 58)
    line = start + size * elf.section_names(binary).index(".debug_line")
    loaded[line + 8] |= 2 | 4
    assert elf.code_digest(bytes(loaded)) != elf.code_digest(binary)
    changed_too = bytearray(changed(".debug_line"))
    changed_too[line + 8] |= 2 | 4
    assert elf.code_digest(bytes(loaded)) != elf.code_digest(bytes(changed_too)), "what is loaded counts"
    over_code = bytearray(changed(text))  # a debugging section that lies over code
    struct.pack_into("<QQ", over_code, line + 24, places[text].start, places[text].stop - places[text].start)
    same = bytearray(binary)
    struct.pack_into("<QQ", same, line + 24, places[text].start, places[text].stop - places[text].start)
    assert elf.code_digest(bytes(over_code)) != elf.code_digest(bytes(same))
    twin = bytearray(binary)  # a section without contents named as the code is
    struct.pack_into("<II", twin, start, *struct.unpack_from("<I", binary, start + size * list(places).index(text)), 8)
    assert elf.code_digest(bytes(twin)) != elf.code_digest(binary)
    other_processor = binary[:48] + bytes([binary[48] ^ 1]) + binary[49:]
    assert elf.code_digest(other_processor) != elf.code_digest(binary)


@pytest.mark.parametrize("data", [b"", b"abc", b"\x7fELF\x02\x01" + b"\xff" * 300, b"\x7fELF\x02\x01" + b"\0" * 400])
def test_the_hash_of_a_broken_binary_is_of_all_of_it(data: bytes) -> None:
    assert elf.code_digest(data) != elf.code_digest(data + b"x")


def test_what_a_candidate_puts_there_is_read_with_care(tmp_path: Path) -> None:
    binary = assembled(tmp_path, 80)
    folder = tmp_path / "worker"
    folder.mkdir()
    (folder / "linked.cubin").symlink_to(binary)
    os.mkfifo(folder / "pipe.cubin")
    (folder / "empty.cubin").touch()
    (folder / "text.so").write_text("no library")
    (folder / "real.cubin").write_bytes(binary.read_bytes())
    assert [(kernel.name, dynamic) for kernel, dynamic in built(folder)] == [("roomy", 0), ("simple", 0)]
    assert list(built(tmp_path / "gone")) == []


def test_descriptions_of_any_kind_do_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    os.mkfifo(folder / "pipe.cubin")
    (folder / "real.cubin").write_bytes(assembled(tmp_path, 80).read_bytes())
    for text in ('{"shared": ' + "[" * 100_000, '{"shared": -1}', '{"shared": true}', "[]", '{"shared": "7"}', "\x00"):
        (folder / "real.json").write_text(text)
        [real] = triton_binaries(str(folder), 1 << 21)
        assert {dynamic for _, dynamic in sent([real])} == {0}
    (folder / "real.json").write_text('{"shared": 4096}')
    assert {dynamic for _, dynamic in sent(triton_binaries(str(folder), 1 << 21))} == {4096}
    assert triton_binaries(str(tmp_path / "gone"), 1 << 21) == []


@pytest.mark.parametrize("files", [None, 7, "text", [1], [{}], [{"data": 3}], [{"data": "~~"}], [{"data": "AAAA"}], {}])
def test_what_a_worker_sends_instead_of_binaries_is_none(files: object) -> None:
    assert list(sent(files)) == []


def test_a_worker_sends_what_lies_in_memory_that_only_it_sees(tmp_path: Path) -> None:
    data = base64.b64encode(assembled(tmp_path, 80).read_bytes()).decode()
    source = f"""
import base64
import os
import pathlib

import torch

folder = pathlib.Path(os.environ["TRITON_CACHE_DIR"]) / "of_a_kernel"
folder.mkdir(parents=True)
(folder / "k.cubin").write_bytes(base64.b64decode("{data}"))
del os.environ["TRITON_CACHE_DIR"]


def relu(x):
    return torch.relu(x)
"""
    candidate = Candidate(files=(("relu.py", source),), language="torch")
    with Judge("cpu") as judge:
        loaded = Loaded(judge.pool, candidate, ("relu",), trusted=False, tf32=False)
        try:
            answer = loaded.runner.worker.request("binaries", {"most_bytes": 1 << 20}, "binaries", timeout_s=30)
            assert [use.name for use, _ in sent(answer["files"])] == ["roomy", "simple"]
        finally:
            loaded.close()


def test_a_line_tells_spills_only_where_there_are_some() -> None:
    made = resources_finding([(Kernel(name="a", registers=40, spilled=0, shared_bytes=128), 1024)])
    assert made.message == "a: 40 registers a thread, 1152 bytes of shared memory a block"
    made = resources_finding([(Kernel(name="b", registers=255, spilled=64, shared_bytes=0), 0)])
    assert "64 bytes of local memory a thread (spilled registers, arrays)" in made.message
