"""Launch lines of OpenCL candidates: what they say, and what is said of wrong ones."""

from __future__ import annotations

import pytest

from kerneleval.languages.common.launches import Step, read_plans
from kerneleval.records import UsageError

DIMS = {"M": 1000, "N": 7}
LAUNCH = "// kerneleval-launch: "


def test_a_kernel_is_its_own_entry_point_unless_the_line_names_another() -> None:
    plans = read_plans(
        f"{LAUNCH}gelu_float32 global=(cdiv(M*N,256)*256,1,1) local=(256,1,1)\n"
        f"{LAUNCH}first entry=amax global=(64 * 8, M) local=(64, 1)\n"
        f"{LAUNCH}second global=M local=1 entry=amax\n"
        "// kerneleval-scratch: amax 4*8*M\n// kerneleval-scratch: amax max(M, 3)\n"
    )
    assert list(plans) == ["gelu_float32", "amax"]
    assert [step.kernel for step in plans["amax"].steps] == ["first", "second"]
    assert plans["gelu_float32"].steps[0].at(DIMS) == ((7168, 1, 1), (256, 1, 1))
    assert plans["amax"].steps[0].at(DIMS) == ((512, 1000, 1), (64, 1, 1))
    assert plans["amax"].scratch_at(DIMS) == [32000, 1000]
    assert plans["gelu_float32"].scratch_at(DIMS) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no kerneleval-launch line"),
        (f"{LAUNCH}k global=M", "line 1: kerneleval-launch: local is missing"),
        (f"\n{LAUNCH}k local=1", "line 2: kerneleval-launch: global is missing"),
        (f"{LAUNCH}k global=M local=1 local=2", "local is given twice"),
        (f"{LAUNCH}k grid=M local=1 global=M", "'grid=M' is unexpected"),
        (f"{LAUNCH}2k global=M local=1", "'2k' is no name of a kernel"),
        (f"{LAUNCH}k global=M local=1 entry=a-b", "'a-b' is no name of a entry point"),
        (f"{LAUNCH}k global=M**2 local=1", "only integers, dims"),
        (f"{LAUNCH}k global=(1,2,3,4) local=1", "one to three sizes"),
        (f"{LAUNCH}k global=__import__('os') local=1", "only integers, dims"),
        (f"{LAUNCH}k global=M local=1\n// kerneleval-scratch: other 4", "no launch line has the entry point other"),
        (f"{LAUNCH}k global=M local=1\n// kerneleval-scratch: k", "the size is missing"),
        (f"{LAUNCH}k global=M local=1\n// kerneleval-scratch: k M/2", "only integers, dims"),
        (f"{LAUNCH}k global=M local=1\n// kerneleval-lunch: k", "unknown header 'kerneleval-lunch'"),
    ],
)
def test_wrong_lines_are_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_plans(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("whole", "group", "said"),
    [
        ("M - 2000", "1", "are no sizes"),
        ("M", "N - 7", "are no sizes"),
        ("M", "64", "is no multiple of local"),
        ("K", "1", "names 'K'; the task's dims are M, N"),
        ("M // (N - 7)", "1", "divides by zero"),
    ],
)
def test_sizes_that_cannot_be_launched_are_named(whole: str, group: str, said: str) -> None:
    step = Step(kernel="k", global_size=(whole, "1", "1"), local_size=(group, "1", "1"))
    with pytest.raises(UsageError) as caught:
        step.at(DIMS)
    assert said in str(caught.value)


def test_an_empty_tensor_gives_a_size_of_0() -> None:
    step = Step(kernel="k", global_size=("cdiv(M,256)*256", "1", "1"), local_size=("256", "1", "1"))
    assert step.at({"M": 0}) == ((0, 1, 1), (256, 1, 1))
