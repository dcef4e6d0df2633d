"""Kernels, their constructors and shape functions turn C++ exceptions into errors."""

import re
from pathlib import Path

GUARD = "base/guarded_op.h"
UNGUARDED = re.compile(
    r":\s*public\s+(?:tensorflow::)?(?:Async)?OpKernel\b"
    r"|(?<!->)\bCompute(?:Async)?\s*\("
    r"|\bREGISTER_(?:SYSTEM_)?KERNEL_BUILDER\s*\("
    r"|\bOpKernelRegistrar\b"
)
REGISTERED = re.compile(r'\bDE_REGISTER_KERNEL\("([\w>]+)"')
OPS = re.compile(r'\bREGISTER_OP\("([\w>]+)"')
#: Ops of tfra that only training and saving run. A graph that holds them can be loaded.
WITHOUT_KERNEL = [
    f"TFRA>CuckooHashTable{name}" for name in ("Accum", "LoadFromFileSystem", "SaveToFileSystem")
]
SHAPES = re.compile(r"\bSetShapeFn\((\w+)")


def texts_of_ops(root: Path) -> str:
    folders = (root / "de_core/cc" / name for name in ("ops", "tfra"))
    return "".join(path.read_text("utf-8") for each in folders for path in each.rglob("*.cc"))


def unguarded(text: str) -> list[str]:
    """Returns the code that TensorFlow would call without `GUARD`, which catches exceptions."""
    return UNGUARDED.findall(text)


def test_no_kernel_goes_past_the_guard(root: Path):
    folders = [root / "de_core/cc" / name for name in ("kernels", "tfra")]
    texts = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for folder in folders
        for path in folder.rglob("*.*")
    }
    assert len(unguarded(texts.pop(GUARD))) == 3
    assert {name: found for name, text in texts.items() if (found := unguarded(text))} == {}
    registered = [op for text in texts.values() for op in REGISTERED.findall(text)]
    assert sorted([*registered, *WITHOUT_KERNEL]) == sorted(OPS.findall(texts_of_ops(root)))


def test_no_shape_function_goes_past_the_guard(root: Path):
    text = texts_of_ops(root)
    assert SHAPES.findall(text) == ["Guarded"] * len(OPS.findall(text))


def test_an_unguarded_kernel_is_noticed():
    assert unguarded("class A final : public OpKernel {")
    assert unguarded("class A : public tensorflow::AsyncOpKernel {")
    assert unguarded("void Compute(OpKernelContext* context) override {")
    assert unguarded('REGISTER_KERNEL_BUILDER(Name("A").Device(DEVICE_CPU), A);')
    assert unguarded('static kernel_factory::OpKernelRegistrar a(def, "A", create);')
    assert not unguarded("class A final : public GuardedOp {\n  explicit A(OpKernelConstruction*)")
    assert not unguarded('DE_REGISTER_KERNEL("A", A);')
