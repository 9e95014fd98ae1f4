"""The hint that goes with an unknown name."""

from __future__ import annotations

import pytest

from kerneleval.records import UsageError, near

TASKS = ("add", "conv1d", "gelu", "gelu_tanh", "layer_norm", "linear_gelu", "softmax", "softmax_cross_entropy")
MANY = tuple(f"operator_{n:02d}" for n in range(30))


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("GELU", TASKS, "did you mean gelu?"),
        ("geluu", TASKS, "did you mean gelu?"),
        ("soft", TASKS, "did you mean softmax, softmax_cross_entropy?"),
        ("entropy", TASKS, "did you mean softmax_cross_entropy?"),
        ("gelu_forward", TASKS, "did you mean gelu?"),
        ("layrnorm", TASKS, "did you mean layer_norm?"),
        ("tpu", ("cpu", "cuda"), "known are cpu, cuda"),
        ("cuda:0", ("cpu", "cuda"), "did you mean cuda?"),
        ("c", ("cpu", "cuda"), "known are cpu, cuda"),
        ("", ("cpu", "cuda"), "known are cpu, cuda"),
        ("zzz", MANY, f"known are {', '.join(MANY[:8])} and 22 more"),
        ("oper", MANY, f"did you mean {', '.join(MANY[:8])}?"),
        ("b", ("B", "a"), "did you mean B?"),
    ],
)
def test_a_hint_suggests_what_is_near_and_else_lists_a_few(name: str, known: tuple[str, ...], hint: str) -> None:
    assert near(name, known) == hint


def test_a_list_that_is_cut_short_says_where_all_are() -> None:
    assert near("zzz", MANY, see="kerneleval tasks").endswith(" and 22 more; see kerneleval tasks")
    assert near("zzz", TASKS, see="kerneleval tasks").endswith("softmax, softmax_cross_entropy")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("GELU", "did you mean gelu?"),
        ("airy", "did you mean airy_ai?"),
        ("qqq", "more; see kerneleval tasks"),
    ],
)
def test_an_unknown_task_is_answered_in_one_short_line(name: str, said: str) -> None:
    from kerneleval import tasks

    with pytest.raises(UsageError) as caught:
        tasks.find(name)
    assert str(caught.value).endswith(said)
    assert len(str(caught.value)) < 250


def test_an_unknown_generator_or_device_is_told_what_there_is() -> None:
    from kerneleval import devices, generators

    with pytest.raises(UsageError, match=r"^no generator is called 'qqq', nor is there such a directory; known are "):
        generators.find("qqq")
    with pytest.raises(UsageError, match=r"^no device is called 'tpu'; known are cpu, cuda"):
        devices.find("tpu")
