#include "de_core/cc/engine/row_converter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "de_core/cc/engine/scalar_types.h"
#include "de_core/cc/engine/snapshot_header.h"
#include "de_core/cc/engine/wide_vectors.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace de::engine {
namespace {

template <size_t kBytes>
void CopyElements(const char* values, float, size_t dim, char* out) noexcept {
  std::memcpy(out, values, dim * kBytes);
}

template <typename From, typename To>
void ConvertElements(const char* values, float, size_t dim, char* out) noexcept {
  using Real = std::conditional_t<std::is_same_v<From, double> && std::is_same_v<To, double>,
                                  double, typename Scalar<To>::Real>;
  for (size_t i = 0; i < dim; ++i) {
    From value;
    std::memcpy(&value, values + i * sizeof(From), sizeof(From));
    const To to = Scalar<To>::Store(static_cast<Real>(Scalar<From>::Load(value)));
    std::memcpy(out + i * sizeof(To), &to, sizeof(To));
  }
}

template <typename To>
void ScaleElements(const char* values, float scale, size_t dim, char* out) noexcept {
  for (size_t i = 0; i < dim; ++i) {
    const float value = static_cast<float>(static_cast<signed char>(values[i])) * scale;
    const To to = Scalar<To>::Store(static_cast<typename Scalar<To>::Real>(value));
    std::memcpy(out + i * sizeof(To), &to, sizeof(To));
  }
}

/// The processor's own conversion makes every NaN quiet.
template <>
void ConvertElements<Half, float>(const char* values, float, size_t dim, char* out) noexcept {
  for (size_t i = 0; i < dim; ++i) {
    Half half;
    std::memcpy(&half, values + i * sizeof(half), sizeof(half));
    const uint32_t quiet = Select((half.bits & 0x7fff) > 0x7c00, 0x00400000U, 0U);
    const uint32_t bits = BitsOf(ToFloat(half)) | quiet;
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

template <typename From, typename To>
DE_WIDE_VECTORS void WideConvertElements(const char* values, float scale, size_t dim,
                                         char* out) noexcept {
  ConvertElements<From, To>(values, scale, dim, out);
}

template <typename To>
DE_WIDE_VECTORS void WideScaleElements(const char* values, float scale, size_t dim,
                                       char* out) noexcept {
  ScaleElements<To>(values, scale, dim, out);
}

#if defined(__x86_64__)
/// By the processor's own instruction.
[[gnu::target("avx2,f16c")]] void HalvesToFloats(const char* values, float scale, size_t dim,
                                                 char* out) noexcept {
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    __m128i halves;
    std::memcpy(&halves, values + i * sizeof(Half), sizeof(halves));
    const __m256 floats = _mm256_cvtph_ps(halves);
    std::memcpy(out + i * sizeof(float), &floats, sizeof(floats));
  }
  if (i < dim) {
    ConvertElements<Half, float>(values + i * sizeof(Half), scale, dim - i,
                                 out + i * sizeof(float));
  }
}

bool ConvertsHalves() noexcept {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return HasWideVectors() && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

ReadValues CopierOf(DType dtype) noexcept {
  switch (SizeOf(dtype)) {
    case 8:
      return &CopyElements<8>;
    case 4:
      return &CopyElements<4>;
    case 2:
      return &CopyElements<2>;
    default:
      return &CopyElements<1>;
  }
}

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

ReadValues ReaderOf(DType stored, DType wanted) noexcept {
  if (stored == wanted) return CopierOf(stored);
  return VisitFloating<ReadValues>(wanted, nullptr, [&](auto to) -> ReadValues {
    using To = typename decltype(to)::type;
    const bool wide = HasWideVectors();
    if (stored == DType::kInt8) return wide ? &WideScaleElements<To> : &ScaleElements<To>;
    return VisitFloating<ReadValues>(stored, nullptr, [wide](auto from) -> ReadValues {
      using From = typename decltype(from)::type;
#if defined(__x86_64__)
      if constexpr (std::is_same_v<From, Half> && std::is_same_v<To, float>) {
        if (ConvertsHalves()) return &HalvesToFloats;
      }
#endif
      return wide ? &WideConvertElements<From, To> : &ConvertElements<From, To>;
    });
  });
}

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
  if (made.read_ == nullptr || (!scaled && from.value_dtype() != to.value_dtype()) ||
      (made.quantize_ && !IsFloating(from.value_dtype()))) {
    return Status::InvalidArgument(
        "values cannot be converted. Received: " + std::string(NameOf(from.value_dtype())) +
        " to become " + std::string(NameOf(to.value_dtype())));
  }
  made.identity_ =
      from.value_dtype() == to.value_dtype() && slots && from.slots().size() == to.slots().size();
  for (size_t i = 0; i < to.slots().size(); ++i) {
    const RowSlot& slot = to.slots()[i];
    const RowSlot* source = from.FindSlot(slot.owner, slot.spec.name);
    const bool shared = source != nullptr && source->spec.dtype == slot.spec.dtype &&
                        source->spec.width == slot.spec.width &&
                        (slots || slot.owner == kScaleOwner);
    made.identity_ = made.identity_ && shared && source->offset == slot.offset;
    if (shared) made.slots_.push_back({source->offset, slot.offset, slot.bytes()});
  }
  *converter = std::move(made);
  return Status::Ok();
}

void RowConverter::Convert(const char* from, char* to) const noexcept {
  if (identity_) {
    std::memcpy(to, from, to_.stride());
    return;
  }
  to_.FillSlots(to, 0);
  for (const Copy& slot : slots_) std::memcpy(to + slot.to, from + slot.from, slot.bytes);
  if (quantize_) {
    WriteScaled(from, to);
  } else {
    read_(from, from_scale_ == 0 ? 1.0F : FloatAt(from + from_scale_), to_.dim(), to);
  }
}

/// Symmetric: the element of greatest magnitude becomes 127 or -127, the others are rounded to
/// even.
void RowConverter::WriteScaled(const char* from, char* to) const noexcept {
  float values[kMaxDim];
  const size_t dim = to_.dim();
  read_(from, 1.0F, dim, reinterpret_cast<char*>(values));
  float greatest = 0;
  for (size_t i = 0; i < dim; ++i) {
    const float magnitude = std::fabs(values[i]);
    if (std::isfinite(magnitude)) greatest = std::max(greatest, magnitude);
  }
  float scale = greatest / 127.0F;
  if (!(scale > 0)) scale = greatest > 0 ? greatest : 1.0F;  // too small a number to divide
  for (size_t i = 0; i < dim; ++i) {
    const float quotient = values[i] / scale;
    // A NaN has no int8: it becomes zero; an infinity becomes the end of the range.
    const float bounded = quotient > 127.0F ? 127.0F : quotient < -127.0F ? -127.0F : quotient;
    to[i] = std::isnan(bounded) ? '\0' : static_cast<char>(std::lrintf(bounded));
  }
  std::memcpy(to + to_scale_, &scale, sizeof(scale));
}

void RowConverter::Measure(const char* from, const char* to, ConversionError* error) const {
  const size_t dim = to_.dim();
  double before[kMaxDim];
  double after[kMaxDim];
  const ReadValues read_before = ReaderOf(from_.value_dtype(), DType::kFloat64);
  const ReadValues read_after = ReaderOf(to_.value_dtype(), DType::kFloat64);
  if (read_before == nullptr || read_after == nullptr) return;
  const auto scale = [](const char* row, size_t at) { return at == 0 ? 1.0F : FloatAt(row + at); };
  read_before(from, scale(from, from_scale_), dim, reinterpret_cast<char*>(before));
  read_after(to, scale(to, to_scale_), dim, reinterpret_cast<char*>(after));
  for (size_t i = 0; i < dim; ++i) {
    const double off = std::fabs(before[i] - after[i]);
    if (std::isnan(off)) continue;
    error->max = std::max(error->max, off);
    error->sum += off;
  }
  error->elements += dim;
}

}  // namespace de::engine
