// Converts rows between two layouts: between a table and a file that has other slots, or stores
// values in another floating-point dtype or as int8 with a scale per row.
#ifndef DE_CORE_ENGINE_ROW_CONVERTER_H_
#define DE_CORE_ENGINE_ROW_CONVERTER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/slot_copy.h"
#include "de_core/cc/engine/rows/value_reader.h"

namespace de::engine {

/// Absolute differences between original and converted values.
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

/// Immutable and thread-safe.
class RowConverter {
 public:
  /// Creates a converter from rows of `from` to rows of `to`. If `slots` is set, copies the slots
  /// that both layouts have (same owner, name and width), and converts slots of another
  /// floating-point dtype. Other slots get their initial values. Returns InvalidArgument if the
  /// values cannot be converted, or if the key types or dims differ.
  static Status Create(const RowLayout& from, const RowLayout& to, bool slots,
                       RowConverter* converter);

  /// True if the rows of both layouts have the same bytes.
  bool identity() const noexcept { return identity_; }

  /// Fills a row of `to`. The caller must set the string references of keys and values.
  void Convert(const char* from, char* to) const noexcept;

  /// Adds the differences between the values of a row and of its converted row to `error`.
  void Measure(const char* from, const char* to, ConversionError* error) const;

 private:
  void WriteScaled(const char* from, char* to) const noexcept;

  RowLayout from_{KeyType::kInt64, DType::kFloat32, 1};
  RowLayout to_{KeyType::kInt64, DType::kFloat32, 1};
  bool identity_ = false;
  bool quantize_ = false;
  size_t from_scale_ = 0;  ///< bytes from the row's start to the scale of int8 values; 0: no scale
  size_t to_scale_ = 0;
  ValueReader read_;
  std::vector<SlotCopy> slots_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_CONVERTER_H_
