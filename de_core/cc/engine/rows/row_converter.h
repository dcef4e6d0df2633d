// Rows of one layout as rows of another: between a table and a file that stores its values in
// another floating-point dtype, or as int8 with a scale a row, or that has other slots.
#ifndef DE_CORE_ENGINE_ROW_CONVERTER_H_
#define DE_CORE_ENGINE_ROW_CONVERTER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/value_reader.h"

namespace de::engine {

/// How far stored values are from the original ones.
struct ConversionError {
  double max = 0;
  double sum = 0;
  uint64_t elements = 0;

  double mean() const noexcept { return elements == 0 ? 0 : sum / static_cast<double>(elements); }
  void Add(const ConversionError& more) noexcept {
    max = max < more.max ? more.max : max;
    sum += more.sum;
    elements += more.elements;
  }
};

/// Immutable: any number of threads may convert at once.
class RowConverter {
 public:
  /// From rows of `from` to rows of `to`. Slots that both have, by owner, name, dtype and width, go
  /// over where `slots`; the others get their initial values. InvalidArgument where the values
  /// cannot be converted or the keys or dims differ.
  static Status Create(const RowLayout& from, const RowLayout& to, bool slots,
                       RowConverter* converter);

  /// Whether rows of both are the same bytes.
  bool identity() const noexcept { return identity_; }

  /// Fills a row of `to`. Leaves string references, keys' and values', to the caller.
  void Convert(const char* from, char* to) const noexcept;

  /// What Convert loses of the values of a row.
  void Measure(const char* from, const char* to, ConversionError* error) const;

 private:
  void WriteScaled(const char* from, char* to) const noexcept;

  RowLayout from_{KeyType::kInt64, DType::kFloat32, 1};
  RowLayout to_{KeyType::kInt64, DType::kFloat32, 1};
  bool identity_ = false;
  bool quantize_ = false;
  size_t from_scale_ = 0;  ///< offset of the scale, where values are int8 with one
  size_t to_scale_ = 0;
  ValueReader read_;
  struct Copy {
    size_t from, to, bytes;
  };
  std::vector<Copy> slots_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_CONVERTER_H_
