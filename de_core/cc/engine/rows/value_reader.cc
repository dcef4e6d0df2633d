#include "de_core/cc/engine/rows/value_reader.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/rows/scalar_types.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace de::engine {
namespace {

template <typename T>
T ElementAt(const char* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <typename From>
constexpr bool kScaled = std::is_same_v<From, int8_t>;

/// Reads one element. Only int8 elements have a scale.
template <typename From, typename To>
To Convert(From value, float scale) noexcept {
  if constexpr (kScaled<From>) {
    const float scaled = static_cast<float>(value) * scale;
    return Scalar<To>::Store(static_cast<typename Scalar<To>::Real>(scaled));
  } else if constexpr (std::is_same_v<From, Half> && std::is_same_v<To, float>) {
    // The hardware conversion, used where available, makes every NaN quiet. So do the same here.
    const uint32_t quiet = Select((value.bits & 0x7fff) > 0x7c00, 0x00400000U, 0U);
    return FloatOfBits(BitsOf(ToFloat(value)) | quiet);
  } else {
    return Scalar<To>::Store(static_cast<typename Scalar<To>::Real>(Scalar<From>::Load(value)));
  }
}

template <typename From, typename To>
void ReadElements(const char* values, float scale, size_t dim, char* out) noexcept {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(out, values, dim * sizeof(To));
  } else {
    for (size_t i = 0; i < dim; ++i) {
      const To to = Convert<From, To>(ElementAt<From>(values + i * sizeof(From)), scale);
      std::memcpy(out + i * sizeof(To), &to, sizeof(To));
    }
  }
}

template <typename From, typename To>
void ReadRows(const char* const* rows, size_t count, size_t scale_offset, size_t dim,
              char* out) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const float scale = kScaled<From> ? ElementAt<float>(rows[i] + scale_offset) : 1.0F;
    ReadElements<From, To>(rows[i], scale, dim, out + i * dim * sizeof(To));
  }
}

template <typename From, typename To>
DE_AVX2_FUNCTION void WideElements(const char* values, float scale, size_t dim,
                                   char* out) noexcept {
  ReadElements<From, To>(values, scale, dim, out);
}

template <typename From, typename To>
DE_AVX2_FUNCTION void WideRows(const char* const* rows, size_t count, size_t scale_offset,
                               size_t dim, char* out) noexcept {
  ReadRows<From, To>(rows, count, scale_offset, dim, out);
}

template <typename From, typename To>
ValueReader Reader() noexcept {
  if (HasAvx2()) return {&WideElements<From, To>, &WideRows<From, To>};
  return {&ReadElements<From, To>, &ReadRows<From, To>};
}

#if defined(__x86_64__)
#define DE_EIGHTS [[gnu::target("avx2,f16c")]]

// Reads half, bfloat16 and int8 values, as exported tables store them, as floats: eight at a time
// with hardware instructions.

template <typename From>
DE_EIGHTS inline __m256 Eight(const char* values, __m256 scale) noexcept {
  if constexpr (kScaled<From>) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), scale);
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
    if constexpr (std::is_same_v<From, Half>) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

template <typename From>
DE_EIGHTS inline void Eights(const char* values, float scale, size_t dim, char* out) noexcept {
  const __m256 scales = _mm256_set1_ps(scale);
  size_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    const __m256 eight = Eight<From>(values + i * sizeof(From), scales);
    std::memcpy(out + i * sizeof(float), &eight, sizeof(eight));
  }
  ReadElements<From, float>(values + i * sizeof(From), scale, dim - i, out + i * sizeof(float));
}

/// `kDim` is the width if it is a compile-time constant, otherwise 0.
template <typename From, size_t kDim>
DE_EIGHTS inline void RowsOfDim(const char* const* rows, size_t count, size_t scale_offset,
                                size_t dim, char* out) noexcept {
  const size_t width = kDim != 0 ? kDim : dim;
  for (size_t i = 0; i < count; ++i) {
    const float scale = kScaled<From> ? ElementAt<float>(rows[i] + scale_offset) : 1.0F;
    Eights<From>(rows[i], scale, width, out + i * width * sizeof(float));
  }
}

template <typename From>
DE_EIGHTS void RowsOfEights(const char* const* rows, size_t count, size_t scale_offset, size_t dim,
                            char* out) noexcept {
  switch (dim) {
    case 16:
      return RowsOfDim<From, 16>(rows, count, scale_offset, dim, out);
    case 32:
      return RowsOfDim<From, 32>(rows, count, scale_offset, dim, out);
    case 64:
      return RowsOfDim<From, 64>(rows, count, scale_offset, dim, out);
    case 128:
      return RowsOfDim<From, 128>(rows, count, scale_offset, dim, out);
    default:
      return RowsOfDim<From, 0>(rows, count, scale_offset, dim, out);
  }
}

bool HasEights() noexcept {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return HasAvx2() && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

ValueReader EightsOf(DType stored) noexcept {
  switch (stored) {
    case DType::kHalf:
      return {&Eights<Half>, &RowsOfEights<Half>};
    case DType::kBFloat16:
      return {&Eights<BFloat16>, &RowsOfEights<BFloat16>};
    case DType::kInt8:
      return {&Eights<int8_t>, &RowsOfEights<int8_t>};
    default:
      return {};
  }
}
#endif

ValueReader CopierOf(DType dtype) noexcept {
  switch (SizeOf(dtype)) {
    case 8:
      return Reader<uint64_t, uint64_t>();
    case 4:
      return Reader<uint32_t, uint32_t>();
    case 2:
      return Reader<uint16_t, uint16_t>();
    default:
      return Reader<uint8_t, uint8_t>();
  }
}

}  // namespace

ValueReader ReaderOf(DType stored, DType wanted) noexcept {
  if (stored == wanted) return CopierOf(stored);
#if defined(__x86_64__)
  if (wanted == DType::kFloat32 && HasEights()) {
    const ValueReader eights = EightsOf(stored);
    if (eights) return eights;
  }
#endif
  return VisitFloating<ValueReader>(wanted, {}, [&](auto to) {
    using To = typename decltype(to)::type;
    if (stored == DType::kInt8) return Reader<int8_t, To>();
    return VisitFloating<ValueReader>(
        stored, {}, [](auto from) { return Reader<typename decltype(from)::type, To>(); });
  });
}

}  // namespace de::engine
