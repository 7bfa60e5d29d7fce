"""Lets PyPI's torchvision be imported beside a CPU build of torch.

Its compiled operators don't load there, and its fake kernels then miss the schemas of `nms` and
`qnms`. SGLang imports torchvision but calls neither. A .pth file imports this module at every
start of the interpreter, so it does next to nothing until somebody asks for torchvision. Where the
operators do load, as beside a CUDA build, they bring their schemas and nothing is declared.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_SCHEMAS = ("nms", "qnms")
_kept: list[object] = []  # a torch.library.Library takes its definitions back when it is collected


class _DeclareFirst:
    """A finder that finds nothing, but declares the schemas when torchvision is looked for."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            _declare_missing()
        return None


def _declare_missing() -> None:
    if _operators_load():
        return
    library = importlib.import_module("torch").library.Library("torchvision", "FRAGMENT")
    for name in _SCHEMAS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


def _operators_load() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    load = importlib.import_module("torch").ops.load_library
    try:
        for library in Path(spec.origin).parent.glob("_C*.so"):
            load(str(library))
    except OSError:
        return False
    return True


sys.meta_path.insert(0, _DeclareFirst())
