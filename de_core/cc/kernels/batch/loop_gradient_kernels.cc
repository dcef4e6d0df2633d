// Kernels that carry a table's gradient out of tf.cond and tf.while_loop.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_op_registry.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace de::kernels {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TypeIndex;  // the registration macros need this name

/// A tree of row gradients. Adding two trees takes constant time and copies nothing.
class RowGradients {
 public:
  RowGradients() = default;
  RowGradients(const Tensor& keys, const Tensor& values)
      : node_(std::make_shared<Node>(keys, values, nullptr, nullptr)) {}

  static RowGradients Sum(const RowGradients& a, const RowGradients& b) {
    if (a.node_ == nullptr || b.node_ == nullptr) return a.node_ == nullptr ? b : a;
    RowGradients sum;
    sum.node_ = std::make_shared<Node>(Tensor(), Tensor(), a.node_, b.node_);
    return sum;
  }

  /// Returns pairs of keys [n] and values [n, dim].
  std::vector<std::pair<Tensor, Tensor>> Parts() const {
    std::vector<std::pair<Tensor, Tensor>> parts;
    // no recursion: a tf.while_loop creates a tree as deep as its number of iterations
    std::vector<const Node*> waiting = {node_.get()};
    while (!waiting.empty()) {
      const Node* node = waiting.back();
      waiting.pop_back();
      if (node == nullptr) continue;
      if (node->left == nullptr) {
        parts.emplace_back(node->keys, node->values);
      } else {
        waiting.push_back(node->right.get());
        waiting.push_back(node->left.get());
      }
    }
    return parts;
  }

  // Required members of a variant.
  static const char kTypeName[];
  std::string TypeName() const { return kTypeName; }
  std::string DebugString() const { return absl::StrCat("RowGradients of ", Parts().size()); }
  void Encode(tensorflow::VariantTensorData* data) const {
    for (const auto& [keys, values] : Parts()) {
      *data->add_tensors() = keys;
      *data->add_tensors() = values;
    }
  }
  bool Decode(const tensorflow::VariantTensorData& data) {
    if (data.tensors_size() % 2 != 0) return false;
    *this = RowGradients();
    for (int i = 0; i < data.tensors_size(); i += 2) {
      *this = Sum(*this, RowGradients(data.tensors(i), data.tensors(i + 1)));
    }
    return true;
  }

 private:
  struct Node {
    Tensor keys, values;
    std::shared_ptr<Node> left, right;  ///< both set, or none for a leaf
    std::shared_ptr<Node> next;         ///< links the nodes that are being freed

    Node(const Tensor& k, const Tensor& v, std::shared_ptr<Node> l, std::shared_ptr<Node> r)
        : keys(k), values(v), left(std::move(l)), right(std::move(r)) {}
    /// Frees nodes one after another: recursion on a deep tree would overflow the stack.
    /// Allocates nothing, because a destructor cannot report that memory ran out.
    ~Node() {
      std::shared_ptr<Node> doomed;
      const auto add = [&doomed](std::shared_ptr<Node> node) {
        if (node == nullptr || node.use_count() > 1) return;
        node->next = std::move(doomed);
        doomed = std::move(node);
      };
      add(std::move(left));
      add(std::move(right));
      while (doomed != nullptr) {
        const std::shared_ptr<Node> node = std::move(doomed);
        doomed = std::move(node->next);
        add(std::move(node->left));
        add(std::move(node->right));
      }
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
  };
  std::shared_ptr<Node> node_;
};

const char RowGradients::kTypeName[] = "de_core::RowGradients";

absl::Status Zeros(OpKernelContext*, const RowGradients&, RowGradients* out) {
  *out = RowGradients();
  return absl::OkStatus();
}

absl::Status Add(OpKernelContext*, const RowGradients& a, const RowGradients& b,
                 RowGradients* out) {
  return GuardedKernel([&] {  // an op of TensorFlow calls this, and expects no exception
    *out = RowGradients::Sum(a, b);
    return absl::OkStatus();
  });
}

absl::Status OutputGradients(OpKernelContext* context, RowGradients gradients) {
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({}), &output));
  output->scalar<tensorflow::Variant>()() = std::move(gradients);
  return absl::OkStatus();
}

class LoopAnchorOp final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;
  absl::Status Execute(OpKernelContext* context) override {
    return OutputGradients(context, RowGradients());
  }
  bool IsExpensive() override { return false; }
};

class RowGradientsOp final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;
  absl::Status Execute(OpKernelContext* context) override {
    const Tensor& keys = context->input(0);
    const Tensor& values = context->input(1);
    if (keys.dims() != 1 || values.dims() != 2 || keys.dim_size(0) != values.dim_size(0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "values must have one row for each of the keys [n]. Received: keys.shape=",
          keys.shape().DebugString(), ", values.shape=", values.shape().DebugString()));
    }
    return OutputGradients(context, RowGradients(keys, values));
  }
  bool IsExpensive() override { return false; }
};

class RowGradientsConcatOp final : public GuardedOp {
 public:
  explicit RowGradientsConcatOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("Tkeys", &key_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("Tvalues", &value_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
  }

  absl::Status Execute(OpKernelContext* context) override {
    TF_RETURN_IF_ERROR(CheckScalar(context, 0, "gradients"));
    const auto* gradients = context->input(0).scalar<tensorflow::Variant>()().get<RowGradients>();
    if (gradients == nullptr) {
      return absl::InvalidArgumentError(
          "gradients must come from DeRowGradients. Received: another variant");
    }
    const auto parts = gradients->Parts();
    int64_t count = 0;
    for (const auto& [keys, values] : parts) {
      if (keys.dtype() != key_dtype_ || values.dtype() != value_dtype_ ||
          values.dim_size(1) != dim_) {
        return absl::InvalidArgumentError(
            absl::StrCat("gradients must be of one table, of dim=", dim_,
                         ". Received: values.shape=", values.shape().DebugString()));
      }
      count += keys.dim_size(0);
    }
    if (parts.size() == 1) {
      context->set_output(0, parts[0].first);
      context->set_output(1, parts[0].second);
      return absl::OkStatus();
    }
    Tensor* all_keys = nullptr;
    Tensor* all_values = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 0, {count}, &all_keys));
    TF_RETURN_IF_ERROR(AllocateOutput(context, 1, {count, dim_}, &all_values));
    int64_t at = 0;
    for (const auto& [keys, values] : parts) {
      if (key_dtype_ == tensorflow::DT_STRING) {
        const auto from = keys.flat<tensorflow::tstring>();
        auto to = all_keys->flat<tensorflow::tstring>();
        for (int64_t i = 0; i < from.size(); ++i) to(at + i) = from(i);
      } else {
        CopyBytes(keys, at, all_keys);
      }
      CopyBytes(values, at, all_values);
      at += keys.dim_size(0);
    }
    return absl::OkStatus();
  }

 private:
  /// Copies `from` to `to`, starting at row `at` of `to`.
  static void CopyBytes(const Tensor& from, int64_t at, Tensor* to) {
    const auto bytes = from.tensor_data();
    if (bytes.empty()) return;
    const auto row_bytes = bytes.size() / static_cast<size_t>(from.dim_size(0));
    std::memcpy(const_cast<char*>(to->tensor_data().data()) + static_cast<size_t>(at) * row_bytes,
                bytes.data(), bytes.size());
  }

  DataType key_dtype_, value_dtype_;
  int64_t dim_ = 0;
};

REGISTER_UNARY_VARIANT_DECODE_FUNCTION(RowGradients, RowGradients::kTypeName);
REGISTER_UNARY_VARIANT_UNARY_OP_FUNCTION(tensorflow::ZEROS_LIKE_VARIANT_UNARY_OP,
                                         tensorflow::DEVICE_CPU, RowGradients, Zeros);
REGISTER_UNARY_VARIANT_BINARY_OP_FUNCTION(tensorflow::ADD_VARIANT_BINARY_OP, tensorflow::DEVICE_CPU,
                                          RowGradients, Add);
DE_REGISTER_KERNEL("DeLoopAnchor", LoopAnchorOp);
DE_REGISTER_KERNEL("DeRowGradients", RowGradientsOp);
DE_REGISTER_KERNEL("DeRowGradientsConcat", RowGradientsConcatOp);

}  // namespace
}  // namespace de::kernels
