"""Settings from the environment: ``KERNELEVAL_STORE``, ``KERNELEVAL_DEVICE``, ``KERNELEVAL_CACHE_DIR``.

A command-line option wins over its variable. The command line reads them here, once, and complains about a bad one
before any work starts; the cache directory is used where builds are kept, by the judge.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from kerneleval.records import UsageError

PREFIX = "KERNELEVAL_"


class Settings(BaseSettings):
    """What a user sets once for all commands; an empty variable counts as not set."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    store: str | None = None
    """Path or URL of the store; None: ``kerneleval.db`` in the working directory."""
    device: str | None = None
    """Device kind; None: the GPU where there is one, else the CPU."""
    cache_dir: Path = Field(default_factory=lambda: _user_cache() / "kerneleval")
    """Where compiled candidates and noise figures are kept; ``kerneleval`` in the user's cache directory otherwise."""

    @field_validator("cache_dir")
    @classmethod
    def _is_directory(cls, value: Path) -> Path:
        if value.exists() and not value.is_dir():
            raise ValueError("is a file; give a directory")
        return value


def _user_cache() -> Path:
    # The judge has the same rule (judge/windows/worker_pool.py), but importing the judge means importing torch.
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) if base else Path.home() / ".cache"


def read() -> Settings:
    """The settings of this environment. Raises UsageError that names the variable with the bad value."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        variable = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        reason = str(first["msg"]).removeprefix("Value error, ")
        raise UsageError(f"{variable}={first.get('input')!s}: {reason}") from error
