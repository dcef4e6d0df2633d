// Batches of keys and rows in vectors, as the engine's verbs take them.
#ifndef DE_CORE_TESTING_BATCHES_H_
#define DE_CORE_TESTING_BATCHES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/policy/row_policy.h"
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

/// Reads or writes a metadata column of the rows of `keys`.
template <typename Table>
Status ReadColumn(const Table& table, RowColumn column, const Keys& keys, int64_t* values,
                  bool* found = nullptr) {
  return table.FindSlot(std::string(kMetadataOwner), std::string(NameOf(column)), sizeof(*values),
                        keys, reinterpret_cast<char*>(values), found);
}
template <typename Table>
Status WriteColumn(Table& table, RowColumn column, const Keys& keys, const int64_t* values) {
  return table.AssignSlot(std::string(kMetadataOwner), std::string(NameOf(column)), sizeof(*values),
                          keys, reinterpret_cast<const char*>(values));
}

}  // namespace de::engine

#endif  // DE_CORE_TESTING_BATCHES_H_
