// The resource behind a table's handle: a live table in memory, which can be written, or a frozen
// table, which serves the snapshot files of an exported model. Lookup ops accept both, so exporting
// a trained graph does not change the graph. A live table may be closed while functions that
// TensorFlow keeps still hold its handle.
#ifndef DE_CORE_KERNELS_TABLE_RESOURCE_H_
#define DE_CORE_KERNELS_TABLE_RESOURCE_H_

#include <memory>
#include <mutex>
#include <string>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/kernels/base/engine_bridge.h"
#include "de_core/cc/kernels/files/frozen_file.h"
#include "de_core/cc/kernels/table/op_clock.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace de::kernels {

class TableResource final : public tensorflow::ResourceBase {
 public:
  /// Creates a resource for a frozen table, which has no files yet. A resource manager registers it
  /// under `container` and `name`.
  TableResource(tensorflow::DataType key_dtype, tensorflow::DataType value_dtype, int64_t dim,
                std::string container, std::string name)
      : key_dtype_(key_dtype),
        value_dtype_(value_dtype),
        dim_(dim),
        container_(std::move(container)),
        name_(std::move(name)) {}
  /// Creates a resource for the live table `live`. Error messages use `name`.
  TableResource(tensorflow::DataType key_dtype, tensorflow::DataType value_dtype, int64_t dim,
                std::string name, std::unique_ptr<engine::TableBackend> live)
      : key_dtype_(key_dtype),
        value_dtype_(value_dtype),
        dim_(dim),
        is_live_(true),
        name_(std::move(name)),
        live_(std::move(live)) {}

  /// Frees a live table once its running ops have ended. Later ops fail.
  void Close();

  /// Serves `file` from now on and counts one more user. Running lookups finish on the old file.
  void OpenFrozen(std::shared_ptr<const FrozenFile> file);
  /// Removes one user. Returns true if it was the last. Lookups through existing handles continue.
  bool CloseFrozen();

  /// Returns the live table, or an error if it is frozen or closed.
  absl::Status Live(std::shared_ptr<engine::TableBackend>* table) const;
  /// Returns the file of a frozen table, or an error if it is live or not open.
  absl::Status Frozen(std::shared_ptr<const FrozenFile>* file) const;

  absl::Status Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                    engine::Executor* executor) const;
  /// Like Find, for keys whose update does not follow in exactly this batch.
  absl::Status Read(const engine::Keys& keys, engine::ValuesOut out,
                    engine::Executor* executor) const;
  absl::Status Size(int64_t* rows) const;
  absl::Status StatsJson(std::string* json) const;

  /// Returns an error unless keys and values have the table's types, and rows its width.
  absl::Status CheckKeys(tensorflow::DataType dtype) const;
  /// Also checks that the batch is not too large. Call it before reading the batch.
  absl::Status CheckKeys(const tensorflow::Tensor& keys) const;
  absl::Status CheckValues(tensorflow::DataType dtype, int64_t dim) const;

  tensorflow::DataType key_dtype() const noexcept { return key_dtype_; }
  tensorflow::DataType value_dtype() const noexcept { return value_dtype_; }
  int64_t dim() const noexcept { return dim_; }
  const std::string& container() const noexcept { return container_; }
  const std::string& name() const noexcept { return name_; }

  std::string DebugString() const override;

  mutable OpClock lookups;          ///< ops that read rows for a model
  mutable OpClock updates;          ///< optimizer steps
  mutable GradientNorms gradients;  ///< gradients of the optimizer steps

 private:
  /// The object that answers a read: the live table, or a frozen table's file. The other is
  /// nullptr.
  struct Reader {
    std::shared_ptr<engine::TableBackend> table;
    std::shared_ptr<const FrozenFile> file;
  };
  absl::Status ForReading(Reader* reader) const {
    return is_live_ ? Live(&reader->table) : Frozen(&reader->file);
  }

  const tensorflow::DataType key_dtype_;
  const tensorflow::DataType value_dtype_;
  const int64_t dim_;
  const bool is_live_ = false;
  const std::string container_;
  const std::string name_;
  mutable std::mutex mutex_;                    // guards the members below
  std::shared_ptr<engine::TableBackend> live_;  // nullptr if closed or frozen
  std::shared_ptr<const FrozenFile> frozen_;
  int64_t users_ = 0;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_TABLE_RESOURCE_H_
