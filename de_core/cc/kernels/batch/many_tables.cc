#include "de_core/cc/kernels/batch/many_tables.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/base/executor.h"

namespace de::kernels {

absl::Status TablesIn(tensorflow::OpKernelContext* context, std::vector<TablePointer>* tables) {
  tensorflow::OpInputList handles;
  TF_RETURN_IF_ERROR(context->input_list("handles", &handles));
  for (const tensorflow::Tensor& handle : handles) {
    if (handle.NumElements() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("a handle must be a scalar. Received: shape=",
                                                     handle.shape().DebugString()));
    }
    tables->emplace_back();
    TF_RETURN_IF_ERROR(tensorflow::LookupResource(
        context, handle.flat<tensorflow::ResourceHandle>()(0), &tables->back()));
  }
  return absl::OkStatus();
}

absl::Status RunAll(const std::vector<std::function<absl::Status()>>& tasks,
                    engine::Executor* executor) {
  std::vector<absl::Status> statuses(tasks.size());
  engine::RunTasks(tasks.size() > 1 ? executor : nullptr, tasks.size(), [&](size_t task) {
    statuses[task] = GuardedKernel([&] { return tasks[task](); });
  });
  for (const absl::Status& status : statuses) TF_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status RunPerTable(const std::vector<size_t>& counts, PoolExecutor* executor,
                         const std::function<absl::Status(size_t, engine::Executor*)>& run) {
  if (counts.size() == 1) return run(0, executor);
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  const size_t threads = total < kIdsWorthThreads ? 1 : executor->threads();
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (threads > 1) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return counts[a] > counts[b]; });
  }
  std::vector<std::function<absl::Status()>> tasks;
  for (const size_t table : order) {
    if (threads > 1 && counts[table] > total / threads) {
      TF_RETURN_IF_ERROR(run(table, executor));
    } else {
      tasks.push_back([&run, table] { return run(table, nullptr); });
    }
  }
  return RunAll(tasks, threads > 1 ? executor : nullptr);
}

}  // namespace de::kernels
