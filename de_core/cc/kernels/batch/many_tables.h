// Work on many tables at once.
#ifndef DE_CORE_KERNELS_MANY_TABLES_H_
#define DE_CORE_KERNELS_MANY_TABLES_H_

#include <functional>
#include <vector>

#include "de_core/cc/kernels/base/engine_bridge.h"
#include "de_core/cc/kernels/table/table_resource.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {

using TablePointer = tensorflow::core::RefCountPtr<TableResource>;

/// Finds the tables of the input `handles`.
absl::Status TablesIn(tensorflow::OpKernelContext* context, std::vector<TablePointer>* tables);

/// With fewer ids in a batch, waking threads that read or write rows takes longer than it saves.
inline constexpr size_t kIdsWorthThreads = 4096;

/// Runs tasks that return a Status, and returns the Status of a failed task, or OK. `executor` may
/// be nullptr.
absl::Status RunAll(const std::vector<std::function<absl::Status()>>& tasks,
                    engine::Executor* executor);

/// Calls run(table number, its executor) for tables with `counts` keys. A single table, and a table
/// with most of the keys, gets all threads. Other tables get one thread each, the largest first,
/// and run at the same time. Returns the Status of a failed call, or OK.
absl::Status RunPerTable(const std::vector<size_t>& counts, PoolExecutor* executor,
                         const std::function<absl::Status(size_t, engine::Executor*)>& run);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_MANY_TABLES_H_
