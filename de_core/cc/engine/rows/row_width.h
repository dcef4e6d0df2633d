// The width of a table's values in bytes, for loops over many rows: a constant of the compiler for
// common widths.
#ifndef DE_CORE_ENGINE_ROW_WIDTH_H_
#define DE_CORE_ENGINE_ROW_WIDTH_H_

#include <cstddef>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {

/// `kBytes` is the width, or 0 if the compiler does not know it.
template <size_t kBytes>
class RowWidth {
 public:
  explicit RowWidth(size_t bytes) noexcept : bytes_(bytes) {}

  size_t bytes() const noexcept { return kBytes != 0 ? kBytes : bytes_; }
  void Copy(char* to, const char* from) const noexcept { CopyBytes(to, from, bytes()); }
  void Prefetch(const char* at) const noexcept { PrefetchRow(at, bytes()); }

 private:
  size_t bytes_;
};

/// Returns use(RowWidth). The widths of 8 to 64 floats are constants, because loops without them
/// were slower at these widths (docs/reference/benchmarks.md). All other widths share one version.
template <typename Use>
auto WithRowWidth(size_t bytes, const Use& use) {
  switch (bytes) {
    case 32:
      return use(RowWidth<32>(bytes));
    case 64:
      return use(RowWidth<64>(bytes));
    case 128:
      return use(RowWidth<128>(bytes));
    case 256:
      return use(RowWidth<256>(bytes));
    default:
      return use(RowWidth<0>(bytes));
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_WIDTH_H_
