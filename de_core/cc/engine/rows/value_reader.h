// Values that are stored in one dtype, read as another: a copy, a floating-point conversion, or
// int8 times a scale.
#ifndef DE_CORE_ENGINE_VALUE_READER_H_
#define DE_CORE_ENGINE_VALUE_READER_H_

#include <cstddef>

#include "de_core/cc/engine/base/types.h"

namespace de::engine {

struct ValueReader {
  /// Reads `dim` values. `scale` belongs to int8.
  using Values = void (*)(const char* values, float scale, size_t dim, char* out) noexcept;
  /// Reads those of `count` rows, which begin with them, one behind the other into `out`; the scale
  /// of int8 is a float at `scale_offset` of each row.
  using Rows = void (*)(const char* const* rows, size_t count, size_t scale_offset, size_t dim,
                        char* out) noexcept;

  Values values = nullptr;
  Rows rows = nullptr;

  explicit operator bool() const noexcept { return values != nullptr; }
};

/// Reads `stored` values as `wanted` ones. Empty where that is none of the above.
ValueReader ReaderOf(DType stored, DType wanted) noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_VALUE_READER_H_
