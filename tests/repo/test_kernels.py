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
HIDDEN = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
#: Definitions at the start of a line, for a function with its parameters.
DEFINED = re.compile(
    r"^(?:constexpr .*?\b(k\w+)\b(?:\[.*\])? ?[={]"
    r"|(?:class|struct|enum class|using) (\w+)\b(?!.*;$)"
    r"|using (\w+) ="
    r"|(?!template|return|else|using|constexpr|class|struct|REGISTER|DE_)"
    r"\w[\w:<>,*& ]*[ *&](\w+\(.*))",
    re.MULTILINE,
)
SHAPES = re.compile(r"\bSetShapeFn\((\w+)")


def texts_of_ops(root: Path) -> str:
    folders = (root / "de_core/cc" / name for name in ("ops", "tfra"))
    return "".join(path.read_text("utf-8") for each in folders for path in each.rglob("*.cc"))


def unguarded(text: str) -> list[str]:
    """Returns the code that TensorFlow would call without `GUARD`, which catches exceptions."""
    return UNGUARDED.findall(text)


def hidden_names(text: str) -> set[str]:
    """Returns what the unnamed namespaces of a source define."""
    return {"".join(names) for hidden in HIDDEN.findall(text) for names in DEFINED.findall(hidden)}


def test_sources_hide_different_names(root: Path):
    """pip compiles several sources as one, and another source more changes which ones."""
    files: dict[str, list[str]] = {}
    for folder in ("kernels", "ops"):
        for path in sorted((root / "de_core/cc" / folder).rglob("*.cc")):
            for name in hidden_names(path.read_text("utf-8")):
                files.setdefault(name, []).append(path.name)
    assert len(files) > 100
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def test_hidden_names_are_found():
    text = "namespace {\nconstexpr size_t kA = 1;\nclass B {\n  int c() {\n};\nint D(int e) {\n"
    text += "using F = int;\nusing g::H;\n}  // namespace\nint I(int j) {\n"
    assert hidden_names(text) == {"kA", "B", "D(int e) {", "F"}


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
