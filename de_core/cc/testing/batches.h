// Batches of keys and rows in vectors, as the engine's verbs take them.
#ifndef DE_CORE_TESTING_BATCHES_H_
#define DE_CORE_TESTING_BATCHES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {

inline Keys KeysOf(const std::vector<int64_t>& keys) { return {keys.data(), nullptr, keys.size()}; }
inline Keys KeysOf(const std::vector<std::string_view>& keys) {
  return {nullptr, keys.data(), keys.size()};
}

/// Rows to write.
inline Values RowsIn(const std::vector<float>& rows) {
  return {reinterpret_cast<const char*>(rows.data()), nullptr};
}
/// Memory for rows to read.
inline ValuesOut RowsTo(std::vector<float>* rows) {
  return {reinterpret_cast<char*>(rows->data()), nullptr};
}

}  // namespace de::engine

#endif  // DE_CORE_TESTING_BATCHES_H_
