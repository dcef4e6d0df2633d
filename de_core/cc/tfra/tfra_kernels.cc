// Kernels of tfra's ops. Each runs the kernels of other registered ops on its own inputs and
// outputs: our table's ops, or TensorFlow's. So this library contains nothing of the engine.
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/base/guarded_op.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace de::tfra {
namespace {

using kernels::GuardedOp;
using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

/// Returns our name of one of tfra's attributes.
std::string_view NameOf(std::string_view attribute) {
  if (attribute == "Tin") return "Tkeys";
  if (attribute == "Tout") return "Tvalues";
  return attribute;
}

/// Creates the kernel of `op` with those attributes of `node` that `op` has, and defaults for the
/// other ones.
absl::Status MakeKernel(OpKernelConstruction* context, const char* op, const NodeDef& node,
                        std::unique_ptr<OpKernel>* kernel) {
  const tensorflow::OpDef* def = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(op, &def).ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the op library _de_ops.so must be loaded before _de_tfra_ops.so. Received: no op ", op));
  }
  NodeDef own;
  own.set_name(context->def().name());
  own.set_op(op);
  own.set_device(context->def().device());
  for (const auto& [name, value] : node.attr()) {
    const std::string renamed(NameOf(name));
    if (tensorflow::FindAttr(renamed, *def) != nullptr) (*own.mutable_attr())[renamed] = value;
  }
  tensorflow::AddDefaultsToNodeDef(*def, &own);
  std::shared_ptr<const tensorflow::NodeProperties> properties;
  const auto* registry = tensorflow::OpRegistry::Global();
  TF_RETURN_IF_ERROR(tensorflow::NodeProperties::CreateFromNodeDef(own, registry, &properties));
  // The number of inputs is checked, their names are not.
  for (size_t i = 0; i < properties->input_types.size(); ++i) own.add_input("input");
  TF_RETURN_IF_ERROR(tensorflow::NodeProperties::CreateFromNodeDef(own, registry, &properties));
  OpKernel* made = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::CreateOpKernel(
      context->device_type(), context->device(), context->device()->GetAllocator({}),
      context->function_library(), properties, context->graph_def_version(), &made));
  kernel->reset(made);
  return absl::OkStatus();
}

struct SameOps {
  const char* name;
  std::initializer_list<const char*> ops;  ///< run one after the other
};
const SameOps kSameOps[] = {
    {"TFRA>CuckooHashTableFind", {"DeTableFindWithDefaults"}},
    {"TFRA>CuckooHashTableFindWithExists", {"DeTableFindWithDefaults"}},
    {"TFRA>CuckooHashTableInsert", {"DeTableInsertOrAssign"}},
    {"TFRA>CuckooHashTableImport", {"DeTableClear", "DeTableInsertOrAssign"}},
    {"TFRA>CuckooHashTableRemove", {"DeTableErase"}},
    {"TFRA>CuckooHashTableClear", {"DeTableClear"}},
    {"TFRA>CuckooHashTableSize", {"DeTableSize"}},
    {"TFRA>CuckooHashTableExport", {"DeTableExport"}},
    {"TFRA>DynamicPartition", {"DynamicPartition"}},
    {"TFRA>DynamicStitch", {"DynamicStitch"}},
    {"TFRA>DynamicStitchFast", {"DynamicStitch"}},
};

/// An op that does the same as other ops.
class SameOp final : public GuardedOp {
 public:
  explicit SameOp(OpKernelConstruction* context) : GuardedOp(context) {
    for (const SameOps& same : kSameOps) {
      if (type_string() != same.name) continue;
      for (const char* op : same.ops) {
        kernels_.emplace_back();
        OP_REQUIRES_OK(context, MakeKernel(context, op, def(), &kernels_.back()));
      }
    }
  }

 protected:
  absl::Status Execute(OpKernelContext* context) override {
    for (const auto& kernel : kernels_) {
      kernel->Compute(context);
      if (!context->status().ok()) break;
    }
    return context->status();
  }

 private:
  std::vector<std::unique_ptr<OpKernel>> kernels_;
};

class TableOp final : public GuardedOp {
 public:
  explicit TableOp(OpKernelConstruction* context) : GuardedOp(context) {
    tensorflow::TensorShape shape;
    OP_REQUIRES_OK(context, context->GetAttr("value_shape", &shape));
    OP_REQUIRES(context, shape.dims() == 1 && shape.dim_size(0) > 0,
                absl::InvalidArgumentError(
                    absl::StrCat("value_shape must be [dim] with a positive dim. Received: "
                                 "value_shape=",
                                 shape.DebugString())));
    OP_REQUIRES_OK(context, context->GetAttr("use_node_name_sharing", &named_));
    NodeDef node = def();
    node.mutable_attr()->erase("init_size");
    tensorflow::AddNodeAttr("dim", shape.dim_size(0), &node);
    OP_REQUIRES_OK(context, MakeKernel(context, "DeTable", node, &by_name_));
    tensorflow::AddNodeAttr("anonymous", true, &node);
    OP_REQUIRES_OK(context, MakeKernel(context, "DeTable", node, &anonymous_));
  }

 protected:
  absl::Status Execute(OpKernelContext* context) override {
    // Only a session has a handle: DirectSession and MasterSession set it (TensorFlow 2.21).
    const bool eager = context->session_handle().empty();
    (eager && !named_ ? anonymous_ : by_name_)->Compute(context);
    return context->status();
  }

 private:
  bool named_ = false;
  std::unique_ptr<OpKernel> by_name_, anonymous_;
};

DE_REGISTER_KERNEL("TFRA>CuckooHashTableOfTensors", TableOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableFind", SameOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableFindWithExists", SameOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableInsert", SameOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableImport", SameOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableRemove", SameOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableClear", SameOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableSize", SameOp);
DE_REGISTER_KERNEL("TFRA>CuckooHashTableExport", SameOp);
DE_REGISTER_KERNEL("TFRA>DynamicPartition", SameOp);
DE_REGISTER_KERNEL("TFRA>DynamicStitch", SameOp);
DE_REGISTER_KERNEL("TFRA>DynamicStitchFast", SameOp);

}  // namespace
}  // namespace de::tfra
