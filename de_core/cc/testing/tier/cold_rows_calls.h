// Appends and finds cold rows in one call each.
#ifndef DE_CORE_TESTING_COLD_ROWS_CALLS_H_
#define DE_CORE_TESTING_COLD_ROWS_CALLS_H_

#include <vector>

#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine::testing {

/// Rows that were found for some keys of a batch.
struct FoundRows {
  std::vector<uint32_t> positions;  ///< ascending positions in the batch
  std::vector<char> rows;           // (positions, stride) of the layout that the caller named
};

/// Stages and commits rows.
inline Status Append(DiskRows* rows, const RowBatch& batch) {
  rows->Discard();
  DE_RETURN_IF_ERROR(rows->Stage(batch));
  return rows->Commit();
}

/// Locates and reads the rows of distinct keys.
inline Status Find(const DiskRows& rows, const Keys& keys, const RowLayout& layout,
                   Executor* executor, FoundRows* found) {
  LocatedRows located;
  DE_RETURN_IF_ERROR(rows.Locate(keys, executor, &located));
  found->rows.clear();
  found->positions = located.positions;
  KeyList some;
  for (const uint32_t position : found->positions) some.Add(keys, position);
  return rows.Read(some.keys(), located, layout, executor, &found->rows);
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_COLD_ROWS_CALLS_H_
