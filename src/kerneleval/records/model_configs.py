"""Models by the package ``transformers`` without its hub: configurations that are here, and weights drawn for them.

KernelBench's level 4 gives a name and a configuration to ``Model``, which loads weights by that name. Weights are
replaced by the judge anyway, so nothing is loaded. ``transformers`` is imported where it is used.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["config_of", "config_text", "is_config", "without_hub"]

_PATCHING = threading.RLock()


def is_config(value: object) -> bool:
    """Whether it is a configuration of ``transformers``."""
    return isinstance(getattr(value, "model_type", None), str) and callable(getattr(value, "to_json_string", None))


def config_text(config: Any) -> str:
    """A configuration as JSON."""
    plain = json.loads(config.to_json_string(use_diff=False))
    return json.dumps({**plain, "model_type": config.model_type})


def config_of(text: str) -> Any:
    """The configuration of a JSON text."""
    from transformers import AutoConfig  # type: ignore[import-not-found]

    return AutoConfig.for_model(**json.loads(text))


@contextlib.contextmanager
def without_hub(known: dict[str, str]) -> Iterator[None]:
    """In this thread, ``from_pretrained`` of a model draws weights for its configuration, in eval mode as it always
    is, and of a configuration reads what is on this machine.

    Args:
        known: name -> JSON of configurations that are known; those that are read are added.
    """
    from transformers import AutoConfig, PretrainedConfig, PreTrainedModel
    from transformers.models.auto.auto_factory import _BaseAutoModelClass  # type: ignore[import-not-found]

    here = threading.get_ident()

    def configuration(original: Callable[..., Any], _cls: type, name: Any, **more: Any) -> Any:
        if str(name) not in known:
            try:
                found, _ = original(name, **{**more, "local_files_only": True})
            except OSError as error:
                raise FileNotFoundError(
                    f"the configuration of {str(name)!r} is not on this machine, and nothing is loaded from a hub; "
                    "save its config.json in a folder, and write that folder in place of the name"
                ) from error
            known[str(name)] = json.dumps(found, default=str)
        return json.loads(known[str(name)]), more

    def drawn(_original: Callable[..., Any], cls: Any, name: Any, *_more: Any, config: Any = None, **given: Any) -> Any:
        kept = {key: given[key] for key in ("dtype", "torch_dtype", "attn_implementation") if key in given}
        made = config or AutoConfig.from_pretrained(name)
        make = cls.from_config if issubclass(cls, _BaseAutoModelClass) else cls._from_config
        return make(made, **kept).eval()

    with _PATCHING, contextlib.ExitStack() as stack:
        for owner, name, instead in (
            (PretrainedConfig, "get_config_dict", configuration),
            (PreTrainedModel, "from_pretrained", drawn),
            (_BaseAutoModelClass, "from_pretrained", drawn),
        ):
            _replace(stack, owner, name, instead, here)
        yield


def _replace(stack: contextlib.ExitStack, owner: type, name: str, instead: Callable[..., Any], thread: int) -> None:
    """Put a class method in place of one until the stack is left; other threads get the original."""
    before = owner.__dict__[name]

    def method(cls: type, *args: Any, **kwargs: Any) -> Any:
        original = before.__get__(None, cls)
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        return instead(original, cls, *args, **kwargs)

    setattr(owner, name, classmethod(method))
    stack.callback(setattr, owner, name, before)
