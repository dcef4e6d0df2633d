// What a table's handle refers to: a live table or, in a model that serves, a frozen one. Lookups
// take either, so a graph that was trained is exported without being rewritten. A live table may be
// closed while its handle lives on in functions that TensorFlow keeps.
#ifndef DE_CORE_KERNELS_TABLE_RESOURCE_H_
#define DE_CORE_KERNELS_TABLE_RESOURCE_H_

#include <memory>
#include <mutex>
#include <string>

#include "de_core/cc/engine/serving/file_backed_table.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/kernels/engine_bridge.h"
#include "de_core/cc/kernels/frozen_file.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace de::kernels {

class TableResource final : public tensorflow::ResourceBase {
 public:
  /// A frozen table, which a resource manager knows by `name` in `container`.
  TableResource(tensorflow::DataType key_dtype, tensorflow::DataType value_dtype, int64_t dim,
                std::string container, std::string name)
      : key_dtype_(key_dtype),
        value_dtype_(value_dtype),
        dim_(dim),
        container_(std::move(container)),
        name_(std::move(name)) {}
  /// A live table; `name` is what errors call it.
  TableResource(tensorflow::DataType key_dtype, tensorflow::DataType value_dtype, int64_t dim,
                std::string name, std::unique_ptr<engine::Table> live)
      : key_dtype_(key_dtype),
        value_dtype_(value_dtype),
        dim_(dim),
        is_live_(true),
        name_(std::move(name)),
        live_(std::shared_ptr<engine::Table>(std::move(live))) {}

  /// Frees a live table, once the ops that are running on it have ended; later ones fail.
  void Close() { live_.Close(); }

  /// Serves `file` from now on and counts one more user; running lookups finish on the old file.
  void OpenFrozen(std::shared_ptr<const FrozenFile> file);
  /// Undoes one OpenFrozen; true if that was the last. Who has a handle goes on reading.
  bool CloseFrozen();

  using FileBackedTable = engine::FileBackedTable<engine::Table, FrozenFile, absl::Status>;
  /// What is read of a live table comes from `file` from now on; `load` brings the file's rows into
  /// it, in place of its own, when it is first asked for more: to be written, for example.
  void ServeUntilLive(std::shared_ptr<const FrozenFile> file, FileBackedTable::Load load) {
    live_.Begin(std::move(file), std::move(load));
  }

  /// The live table, or an error for one that is frozen or closed.
  absl::Status Live(std::shared_ptr<engine::Table>* table);
  /// What a frozen table is served from, or an error for one that is live or not open.
  absl::Status Frozen(std::shared_ptr<const FrozenFile>* file) const;

  absl::Status Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                    engine::Executor* executor) const;
  absl::Status Size(int64_t* rows) const;
  absl::Status StatsJson(std::string* json) const;

  /// Errors unless keys and values have the table's types and the rows its width.
  absl::Status CheckKeys(tensorflow::DataType dtype) const;
  /// The same for a batch, which also must not be too large. Before anything of it is read.
  absl::Status CheckKeys(const tensorflow::Tensor& keys) const;
  absl::Status CheckValues(tensorflow::DataType dtype, int64_t dim) const;

  tensorflow::DataType key_dtype() const noexcept { return key_dtype_; }
  tensorflow::DataType value_dtype() const noexcept { return value_dtype_; }
  int64_t dim() const noexcept { return dim_; }
  const std::string& container() const noexcept { return container_; }
  const std::string& name() const noexcept { return name_; }

  std::string DebugString() const override;

 private:
  /// What answers a read: a file or a live table.
  absl::Status ForReading(FileBackedTable::Reader* reader) const;
  absl::Status Closed() const;

  const tensorflow::DataType key_dtype_;
  const tensorflow::DataType value_dtype_;
  const int64_t dim_;
  const bool is_live_ = false;
  const std::string container_;
  const std::string name_;
  FileBackedTable live_{nullptr};  // of a live table
  mutable std::mutex mutex_;       // guards what follows, of a frozen one
  std::shared_ptr<const FrozenFile> frozen_;
  int64_t users_ = 0;
};

/// Errors, which name the file, unless one of that header fits a table.
absl::Status CheckServes(const TableResource& table, const std::string& path,
                         const engine::SnapshotHeader& header);

/// The table behind input 0 of a kernel.
absl::Status TableOf(tensorflow::OpKernelContext* context,
                     tensorflow::core::RefCountPtr<TableResource>* table);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_TABLE_RESOURCE_H_
