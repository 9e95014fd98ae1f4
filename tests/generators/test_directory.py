"""Candidates from a directory of files."""

import pytest

from kerneleval import tasks
from kerneleval.generators.common.directory import Directory
from kerneleval.records import UsageError

CPP = 'extern "C" int gelu_float32(const float*, float*, long, long, void*) { return %d; }\n'


@pytest.fixture
def gelu():
    return tasks.find("gelu")


def write(folder, **files):
    for name, number in files.items():
        path = folder / name.replace("SLASH", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CPP % number)


def samples(folder, task, device="cpu"):
    return [(c.origin.sample, c.main) for c in Directory(folder).candidates(task, device)]


def test_one_file_a_task(tmp_path, gelu):
    write(tmp_path, geluDOTcpp=1, siluDOTcpp=2)
    assert samples(tmp_path, gelu) == [(0, CPP % 1)]
    assert samples(tmp_path, tasks.find("exp")) == []


def test_samples_by_suffix(tmp_path, gelu):
    write(tmp_path, gelu__2DOTcpp=2, gelu__0DOTcpp=0, gelu__10DOTcpp=10, gelu_more__1DOTcpp=9)
    assert samples(tmp_path, gelu) == [(0, CPP % 0), (2, CPP % 2), (10, CPP % 10)]


def test_samples_in_a_folder(tmp_path, gelu):
    write(tmp_path, geluSLASH1DOTcpp=1, geluSLASHsample_3DOTcpp=3, geluSLASHfirstDOTcpp=7, geluSLASHotherDOTcpp=8)
    (tmp_path / "gelu" / "notes.md").write_text("not a candidate")
    (tmp_path / "gelu" / ".hidden.cpp").write_text("not a candidate")
    assert samples(tmp_path, gelu) == [(0, CPP % 7), (1, CPP % 1), (2, CPP % 8), (3, CPP % 3)]


def test_folders_by_device(tmp_path, gelu):
    write(tmp_path, geluSLASHcpuSLASH0DOTcpp=1, geluSLASHcudaSLASH0DOTcpp=2)
    assert samples(tmp_path, gelu, "cpu") == [(0, CPP % 1)]
    assert samples(tmp_path, gelu, "cuda") == [(0, CPP % 2)]


def test_origin_of_the_file_is_kept(tmp_path, gelu):
    write(tmp_path, gelu__4DOTcpp=1)
    (tmp_path / "gelu__4.origin.json").write_text('{"generator": "model-x", "tokens_out": 12, "sample": 0}')
    (candidate,) = Directory(tmp_path).candidates(gelu, "cpu")
    assert (candidate.origin.generator, candidate.origin.tokens_out, candidate.origin.sample) == ("model-x", 12, 4)


def test_the_same_sample_twice(tmp_path, gelu):
    write(tmp_path, geluDOTcpp=1, gelu__0DOTcpp=2)
    with pytest.raises(UsageError, match="twice"):
        samples(tmp_path, gelu)


def test_unreadable_file_is_said(tmp_path, gelu):
    (tmp_path / "gelu.cpp").write_text("")
    with pytest.raises(UsageError, match="empty"):
        samples(tmp_path, gelu)


def test_no_such_directory(tmp_path):
    with pytest.raises(UsageError, match="no such directory"):
        Directory(tmp_path / "missing")
