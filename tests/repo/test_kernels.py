"""Every kernel derives from `GuardedOp`, which turns exceptions into errors."""

import re
from pathlib import Path

GUARD = "table_op.h"
UNGUARDED = re.compile(
    r":\s*public\s+(?:tensorflow::)?(?:Async)?OpKernel\b|\bCompute(?:Async)?\s*\("
)
REGISTERED = re.compile(r"REGISTER_KERNEL_BUILDER\((.*?)\);", re.DOTALL)


def unguarded(text: str) -> list[str]:
    """Returns the places where a kernel overrides TensorFlow's `Compute` itself."""
    return UNGUARDED.findall(text)


def test_no_kernel_goes_past_the_guard(root: Path):
    folder = root / "de_core/cc/kernels"
    files = [path for path in folder.rglob("*.*") if path.name != GUARD]
    assert sum(len(REGISTERED.findall(path.read_text("utf-8"))) for path in files) > 40
    found = {path.name: unguarded(path.read_text("utf-8")) for path in files}
    assert {name: places for name, places in found.items() if places} == {}
    assert len(unguarded((folder / "table" / GUARD).read_text("utf-8"))) == 2


def test_an_unguarded_kernel_is_noticed():
    assert unguarded("class A final : public OpKernel {")
    assert unguarded("class A : public tensorflow::AsyncOpKernel {")
    assert unguarded("void Compute(OpKernelContext* context) override {")
    assert not unguarded("class A final : public GuardedOp {\n  explicit A(OpKernelConstruction*)")
