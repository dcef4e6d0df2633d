#include "de_core/cc/engine/rows/row_converter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace de::engine {
namespace {

float FloatAt(const char* at) noexcept {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

const RowSlot* ScaleOf(const RowLayout& layout) noexcept {
  if (layout.value_dtype() != DType::kInt8) return nullptr;
  return layout.FindSlot(kScaleOwner, kScaleName);
}

}  // namespace

Status RowConverter::Create(const RowLayout& from, const RowLayout& to, bool slots,
                            RowConverter* converter) {
  if (from.key_type() != to.key_type() || from.dim() != to.dim()) {
    return Status::InvalidArgument(
        "rows must have the table's key type and dim. Received: " +
        std::string(NameOf(from.key_type())) + " keys and dim=" + std::to_string(from.dim()) +
        " for " + std::string(NameOf(to.key_type())) + " keys and dim=" + std::to_string(to.dim()));
  }
  RowConverter made;
  made.from_ = from;
  made.to_ = to;
  const RowSlot* const from_scale = ScaleOf(from);
  const RowSlot* const to_scale = ScaleOf(to);
  if (from_scale != nullptr) made.from_scale_ = from_scale->offset;
  if (to_scale != nullptr) made.to_scale_ = to_scale->offset;
  made.quantize_ = to_scale != nullptr && from_scale == nullptr;
  const bool scaled = from_scale != nullptr || from.value_dtype() != DType::kInt8;
  made.read_ = made.quantize_ ? ReaderOf(from.value_dtype(), DType::kFloat32)
                              : ReaderOf(from.value_dtype(), to.value_dtype());
  // A scaled int8 value means nothing without its scale.
  const bool loses_scale =
      from_scale != nullptr && to_scale == nullptr && to.value_dtype() == DType::kInt8;
  if (!made.read_ || loses_scale || (!scaled && from.value_dtype() != to.value_dtype()) ||
      (made.quantize_ && !IsFloating(from.value_dtype()))) {
    return Status::InvalidArgument(
        "values cannot be converted. Received: " + std::string(NameOf(from.value_dtype())) +
        (from_scale != nullptr ? " with a scale" : "") + " to become " +
        std::string(NameOf(to.value_dtype())));
  }
  made.identity_ = slots && from.IsLike(to);
  made.slots_ = SharedSlots(from, to, slots);
  *converter = std::move(made);
  return Status::Ok();
}

void RowConverter::Convert(const char* from, char* to) const noexcept {
  if (identity_) {
    std::memcpy(to, from, to_.stride());
    return;
  }
  to_.FillSlots(to, 0);
  for (const SlotCopy& slot : slots_) slot.Run(from, to);
  if (quantize_) {
    WriteScaled(from, to);
  } else {
    read_.values(from, from_scale_ == 0 ? 1.0F : FloatAt(from + from_scale_), to_.dim(), to);
  }
}

/// Symmetric quantization: the element of greatest magnitude becomes 127 or -127. The others are
/// rounded to nearest even.
void RowConverter::WriteScaled(const char* from, char* to) const noexcept {
  float values[kMaxDim];
  const size_t dim = to_.dim();
  read_.values(from, 1.0F, dim, reinterpret_cast<char*>(values));
  float greatest = 0;
  for (size_t i = 0; i < dim; ++i) {
    const float magnitude = std::fabs(values[i]);
    if (std::isfinite(magnitude)) greatest = std::max(greatest, magnitude);
  }
  float scale = greatest / 127.0F;
  if (!(scale > 0)) scale = greatest > 0 ? greatest : 1.0F;  // greatest / 127 was rounded to 0
  for (size_t i = 0; i < dim; ++i) {
    const float quotient = values[i] / scale;
    // A NaN becomes zero. An infinity becomes the end of the range.
    const float bounded = quotient > 127.0F ? 127.0F : quotient < -127.0F ? -127.0F : quotient;
    to[i] = std::isnan(bounded) ? '\0' : static_cast<char>(std::lrintf(bounded));
  }
  std::memcpy(to + to_scale_, &scale, sizeof(scale));
}

void RowConverter::Measure(const char* from, const char* to, ConversionError* error) const {
  const size_t dim = to_.dim();
  double before[kMaxDim];
  double after[kMaxDim];
  const ValueReader read_before = ReaderOf(from_.value_dtype(), DType::kFloat64);
  const ValueReader read_after = ReaderOf(to_.value_dtype(), DType::kFloat64);
  if (!read_before || !read_after) return;
  const auto scale = [](const char* row, size_t at) { return at == 0 ? 1.0F : FloatAt(row + at); };
  read_before.values(from, scale(from, from_scale_), dim, reinterpret_cast<char*>(before));
  read_after.values(to, scale(to, to_scale_), dim, reinterpret_cast<char*>(after));
  for (size_t i = 0; i < dim; ++i) {
    const double off = std::fabs(before[i] - after[i]);
    if (std::isnan(off)) continue;
    error->max = std::max(error->max, off);
    error->sum += off;
  }
  error->elements += dim;
}

}  // namespace de::engine
