// Finds optimizer slots by name, and converts slots and gradients between the dtypes of tables and
// tensors.
#ifndef DE_CORE_KERNELS_SLOT_VALUES_H_
#define DE_CORE_KERNELS_SLOT_VALUES_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/policy/row_policy.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/engine/rows/value_reader.h"
#include "de_core/cc/kernels/base/engine_bridge.h"
#include "tensorflow/core/framework/tensor.h"

namespace de::kernels {

/// Finds the slot that `text` names as 'owner/slot'. `owner` receives its first part even if there
/// is no such slot.
inline absl::Status FindSlot(const engine::RowLayout& layout, const std::string& text,
                             std::string* owner, const engine::RowSlot** slot) {
  const size_t cut = text.rfind('/');
  *slot = nullptr;
  if (cut != std::string::npos) {
    *owner = text.substr(0, cut);
    *slot = layout.FindSlot(*owner, text.substr(cut + 1));
  }
  if (*slot != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      *owner == engine::kMetadataOwner
          ? "the table must have the column: create it with a policy that keeps the column"
          : "slot must name a slot of this table as 'owner/slot'",
      ". Received: '", text, "'"));
}

/// Returns the dtype of tensors for slots of dtype `stored`: float32 for bfloat16.
inline tensorflow::DataType SlotsReadAs(engine::DType stored) {
  return ToTensorFlow(engine::IsFloating(stored) ? engine::RealOf(stored) : stored);
}

/// Converts `stored`, which has the elements of `values`, to the dtype of `values`.
inline absl::Status ReadSlots(engine::DType dtype, const std::string& stored,
                              tensorflow::Tensor* values) {
  engine::DType wanted;
  TF_RETURN_IF_ERROR(ToEngine(values->dtype(), &wanted));
  engine::ReaderOf(dtype, wanted)
      .values(stored.data(), 1.0F, static_cast<size_t>(values->NumElements()),
              const_cast<char*>(values->tensor_data().data()));
  return absl::OkStatus();
}

/// Converts `values` to `dtype`, rounded to nearest even.
inline absl::Status ConvertValues(const tensorflow::Tensor& values, engine::DType dtype,
                                  std::string* stored) {
  engine::DType given;
  TF_RETURN_IF_ERROR(ToEngine(values.dtype(), &given));
  const auto elements = static_cast<size_t>(values.NumElements());
  stored->resize(elements * engine::SizeOf(dtype));
  engine::ReaderOf(given, dtype)
      .values(values.tensor_data().data(), 1.0F, elements, stored->data());
  return absl::OkStatus();
}

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SLOT_VALUES_H_
