"""Shaders as C++ on the host, for their logic alone: it is no Metal compiler, and takes what C++ and the words of Metal
below have in common. Every thread of a group is a thread, groups follow one another, and a barrier is one.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

METAL = r"""
#pragma once
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#define kernel
#define device
#define constant
#define threadgroup
#define LANES_ 32
typedef uint32_t uint;
typedef uint16_t ushort;
typedef uint8_t uchar;
typedef _Float16 half;
struct bfloat {
    uint16_t bits;
    bfloat() = default;
    explicit bfloat(float x) {
        uint32_t b;
        std::memcpy(&b, &x, 4);
        bits = x != x ? 0x7fc0 : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    }
    operator float() const {
        const uint32_t b = uint32_t(bits) << 16;
        float x;
        std::memcpy(&x, &b, 4);
        return x;
    }
};
struct float2 { float x, y; float2(float x, float y) : x(x), y(y) {} };
inline thread_local uint item_;
inline float given_[1024];
inline std::barrier<> *meeting_;
inline long most_threads_;
namespace metal {
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline void threadgroup_barrier(mem_flags) { meeting_->arrive_and_wait(); }
namespace precise { using std::exp; using std::log; using std::sqrt; }
using std::fmax; using std::fmin; using std::fabs; using std::min; using std::max;
template <class Op> float across_(float x, Op op) {
    given_[item_] = x;
    meeting_->arrive_and_wait();
    const uint from = item_ / LANES_ * LANES_;
    x = given_[from];
    for (uint i = from + 1; i < from + LANES_ && i < most_threads_; i++) x = op(x, given_[i]);
    meeting_->arrive_and_wait();
    return x;
}
inline float simd_sum(float x) { return across_(x, [](float a, float b) { return a + b; }); }
inline float simd_max(float x) { return across_(x, [](float a, float b) { return std::fmax(a, b); }); }
}
"""

RUN = r"""
#include <thread>
#include <vector>
extern "C" void run_%(name)s(void **given, const long *groups, long size) {
    std::barrier<> meeting(size);
    meeting_ = &meeting;
    most_threads_ = size;
    std::vector<std::thread> threads;
    for (long item = 0; item < size; item++)
        threads.emplace_back([=, &meeting] {
            item_ = item;
            for (long group = 0; group < groups[0]; group++) {
                %(name)s(%(given)s);
                meeting.arrive_and_wait();
            }
        });
    for (auto &thread : threads) thread.join();
}
"""

PLACES = {
    "threadgroup_position_in_grid": "group",
    "thread_position_in_threadgroup": "item",
    "thread_position_in_grid": "group * size + item",
    "thread_index_in_simdgroup": "item % LANES_",
    "simdgroup_index_in_threadgroup": "item / LANES_",
}


def compiler(folder: Path) -> Callable[[str], Any]:
    """A stand-in for ``torch.mps.compile_shader`` that compiles in that folder; for grids along one axis."""
    (folder / "metal_stdlib").write_text(METAL)

    def compile_shader(source: str) -> Any:
        source.encode("ascii")  # as PyTorch hands it to Metal
        # what a group shares is in static memory here, for one group runs at a time
        text = re.sub(r"(?m)^(\s+)threadgroup (\w+ \w+\[)", r"\1static \2", source)
        flat = _run(["g++", "-std=c++20", "-E", "-P", "-I", folder, "-x", "c++", "-"], text)
        kernels = dict(_kernels(source, flat))
        ends = [RUN % {"name": name, "given": _given(parameters)} for name, parameters in kernels.items()]
        _run(
            [
                *("g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-pthread", "-Wno-attributes", "-Werror=narrowing"),
                *("-I", folder, "-x", "c++", "-", "-o", folder / "shader.so"),
            ],
            "\n".join([text, *ends]),
        )
        library = ctypes.CDLL(str(folder / "shader.so"))
        return SimpleNamespace(**{name: _kernel(library, name) for name in kernels})

    return compile_shader


def _run(command: Sequence[Any], text: str) -> str:
    done = subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:4000])
    return done.stdout


def _kernels(source: str, flat: str) -> list[tuple[str, list[str]]]:
    found = []
    for name in re.findall(r"\bkernel void (\w+)\(", source):
        match = re.search(rf"\bvoid {name}\((.*?)\)\s*\{{", flat, re.S)
        assert match, name
        found.append((name, [" ".join(one.split()) for one in match[1].split(",")]))
    return found


def _given(parameters: Sequence[str]) -> str:
    parts = []
    for number, parameter in enumerate(parameters):
        if place := re.search(r"\[\[(\w+)\]\]", parameter):
            parts.append(f"uint({PLACES[place[1]]})")
            continue
        kind = re.sub(r"\w+$", "", parameter).strip()
        if kind.endswith("&"):
            parts.append(f"*({kind[:-1]} *)given[{number}]")
        else:
            parts.append(f"({kind})given[{number}]")
    return ", ".join(parts)


def _kernel(library: ctypes.CDLL, name: str) -> Callable[..., None]:
    function = getattr(library, f"run_{name}")

    def call(*args: Any, threads: Sequence[int], group_size: Sequence[int]) -> None:
        assert group_size[1:] == threads[1:] == (1, 1) and threads[0] % group_size[0] == 0
        numbers = {int: ctypes.c_int64, float: ctypes.c_float}
        kept = [arg if isinstance(arg, torch.Tensor) else numbers[type(arg)](arg) for arg in args]
        places = [one.data_ptr() if isinstance(one, torch.Tensor) else ctypes.addressof(one) for one in kept]
        groups = (ctypes.c_long * 1)(threads[0] // group_size[0])
        function((ctypes.c_void_p * len(places))(*places), groups, ctypes.c_long(group_size[0]))

    return call
