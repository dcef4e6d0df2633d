// The rules of a save that keep only some rows.
#ifndef DE_CORE_ENGINE_KEPT_ROWS_H_
#define DE_CORE_ENGINE_KEPT_ROWS_H_

#include <cstddef>
#include <vector>

#include "de_core/cc/engine/backend/row_source.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

class KeptRows {
 public:
  /// Prepares the rules for rows of `layout`. NotFound if the layout lacks a slot.
  Status Plan(const RowLayout& layout, const std::vector<KeepRule>& rules);

  /// True if the row satisfies all rules.
  bool Keeps(const char* row) const;

 private:
  struct Bound {
    size_t offset;
    DType dtype;
    double at_least;
  };
  std::vector<Bound> bounds_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_KEPT_ROWS_H_
