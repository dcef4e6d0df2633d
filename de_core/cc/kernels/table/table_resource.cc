#include "de_core/cc/kernels/table/table_resource.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace de::kernels {

using tensorflow::DataTypeString;

namespace {

/// Returns the name that users know for a value type: float32, while TensorFlow's C++ says float.
std::string NameOfValues(tensorflow::DataType dtype) {
  engine::DType known;
  return ToEngine(dtype, &known).ok() ? std::string(engine::NameOf(known)) : DataTypeString(dtype);
}

}  // namespace

void TableResource::Close() {
  std::shared_ptr<engine::TableBackend> closed;  // freed after the lock is released
  const std::lock_guard<std::mutex> guard(mutex_);
  closed.swap(live_);
}

void TableResource::OpenFrozen(std::shared_ptr<const FrozenFile> file) {
  const std::lock_guard<std::mutex> guard(mutex_);
  frozen_ = std::move(file);
  ++users_;
}

bool TableResource::CloseFrozen() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (users_ > 0) --users_;
  return users_ == 0;
}

absl::Status TableResource::Live(std::shared_ptr<engine::TableBackend>* table) const {
  if (!is_live_) {
    return absl::FailedPreconditionError(
        "this op needs a live table, one that can be written. Received: a table of an exported "
        "model, which is read-only");
  }
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    *table = live_;
  }
  if (*table != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "a function that uses a de.Variable needs the Variable to exist: keep a reference to it, "
      "or to what holds it, as long as the function is called. Received: the table '",
      name_, "', whose Variable was deleted"));
}

absl::Status TableResource::Frozen(std::shared_ptr<const FrozenFile>* file) const {
  if (is_live_) {
    return absl::FailedPreconditionError(
        "this op needs a table of an exported model. Received: a live table");
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  if (frozen_ == nullptr) {
    return absl::FailedPreconditionError(
        "the table of an exported model must be opened before it is read: run the SavedModel's "
        "initializers (tf.saved_model.load and model servers do). Received: an unopened table");
  }
  *file = frozen_;
  return absl::OkStatus();
}

absl::Status TableResource::Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                                 engine::Executor* executor) const {
  Reader reader;
  TF_RETURN_IF_ERROR(ForReading(&reader));
  if (reader.file != nullptr) return reader.file->Find(keys, out, found, executor);
  return ToAbsl(reader.table->FindToTrain(keys, out, found, executor));
}

absl::Status TableResource::Read(const engine::Keys& keys, engine::ValuesOut out,
                                 engine::Executor* executor) const {
  Reader reader;
  TF_RETURN_IF_ERROR(ForReading(&reader));
  if (reader.file != nullptr) return reader.file->Find(keys, out, nullptr, executor);
  return ToAbsl(reader.table->Find(keys, out, nullptr, executor));
}

absl::Status TableResource::Size(int64_t* rows) const {
  Reader reader;
  TF_RETURN_IF_ERROR(ForReading(&reader));
  if (reader.file != nullptr) return reader.file->Rows(rows);
  *rows = static_cast<int64_t>(reader.table->size());
  return absl::OkStatus();
}

absl::Status TableResource::StatsJson(std::string* json) const {
  const std::string own = absl::StrCat(
      "\"dim\": ", dim_, ", \"key_dtype\": \"", DataTypeString(key_dtype_),
      "\", \"value_dtype\": \"", NameOfValues(value_dtype_), "\", \"lookups\": ", lookups.calls(),
      ", \"lookup_nanoseconds\": ", lookups.nanoseconds(), ", \"updates\": ", updates.calls(),
      ", \"update_nanoseconds\": ", updates.nanoseconds(),
      ", \"gradients_read\": ", gradients.read(),
      ", \"gradient_norms\": ", absl::StrFormat("%.17g", gradients.sum()));
  Reader reader;
  TF_RETURN_IF_ERROR(ForReading(&reader));
  if (reader.file != nullptr) {
    int64_t rows = 0;
    TF_RETURN_IF_ERROR(reader.file->Rows(&rows));
    *json = absl::StrCat("{\"rows\": ", rows, ", ", own, "}");
    return absl::OkStatus();
  }
  const engine::TableStats stats = reader.table->Stats();
  std::string tier;
  if (stats.tier.has_value()) {
    tier = absl::StrCat(
        ", \"tier\": {\"hot_rows\": ", stats.tier->hot_rows,
        ", \"cold_rows\": ", stats.tier->cold_rows, ", \"disk_bytes\": ", stats.tier->disk_bytes,
        ", \"reads\": ", stats.tier->reads, ", \"filter_bytes\": ", stats.tier->filter_bytes,
        ", \"rows_in\": ", stats.tier->rows_in, ", \"rows_out\": ", stats.tier->rows_out, "}");
  }
  *json =
      absl::StrCat("{\"rows\": ", stats.rows, ", ", own,
                   ", \"bytes\": {\"index\": ", stats.index_bytes, ", \"rows\": ", stats.row_bytes,
                   ", \"slots\": ", stats.slot_bytes, ", \"strings\": ", stats.string_bytes,
                   ", \"free\": ", stats.free_bytes, ", \"policy\": ", stats.policy_bytes,
                   "}, \"evicted\": ", stats.evicted, ", \"expired\": ", stats.expired,
                   ", \"refused\": ", stats.refused, ", \"load_factor\": ", stats.load_factor,
                   ", \"hits\": ", stats.hits, ", \"misses\": ", stats.misses,
                   ", \"probe_lengths\": [", absl::StrJoin(stats.probes, ", "), "]", tier, "}");
  return absl::OkStatus();
}

absl::Status TableResource::CheckKeys(tensorflow::DataType dtype) const {
  if (dtype == key_dtype_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("keys must be of the table's key type, ",
                                                 DataTypeString(key_dtype_),
                                                 ". Received: ", DataTypeString(dtype)));
}

absl::Status TableResource::CheckKeys(const tensorflow::Tensor& keys) const {
  TF_RETURN_IF_ERROR(CheckKeys(keys.dtype()));
  return CheckKeyCount(keys);
}

absl::Status TableResource::CheckValues(tensorflow::DataType dtype, int64_t dim) const {
  if (dtype == value_dtype_ && dim == dim_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rows must be ", dim_, " values of ",
                                                 NameOfValues(value_dtype_), ". Received: ", dim,
                                                 " of ", NameOfValues(dtype)));
}

std::string TableResource::DebugString() const {
  return absl::StrCat(is_live_ ? "live" : "frozen", " table of ", DataTypeString(key_dtype_),
                      " keys, ", dim_, " values of ", DataTypeString(value_dtype_));
}

}  // namespace de::kernels
