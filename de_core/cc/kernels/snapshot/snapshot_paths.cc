#include "de_core/cc/kernels/snapshot/snapshot_paths.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "de_core/cc/kernels/table/table_op.h"

namespace de::kernels {
namespace {

using tensorflow::tstring;

absl::Status CheckPath(const std::string& path) {
  if (!path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("path must name a snapshot file. Received: ''");
}

}  // namespace

absl::Status PathOf(tensorflow::OpKernelContext* context, int index, std::string* path) {
  TF_RETURN_IF_ERROR(CheckScalar(context, index, "path"));
  *path = std::string(context->input(index).scalar<tstring>()());
  return CheckPath(*path);
}

absl::Status PathsOf(tensorflow::OpKernelContext* context, int index,
                     std::vector<std::string>* paths) {
  const tensorflow::Tensor& input = context->input(index);
  if (input.dims() > 1 || input.NumElements() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("path must be one path or a vector of them. Received: shape=",
                     input.shape().DebugString()));
  }
  const auto flat = input.flat<tstring>();
  paths->clear();
  for (int64_t i = 0; i < input.NumElements(); ++i) {
    paths->emplace_back(flat(i));
    TF_RETURN_IF_ERROR(CheckPath(paths->back()));
  }
  return absl::OkStatus();
}

absl::Status ChosenKeys(tensorflow::OpKernelContext* context, const TableResource& table,
                        std::optional<KeyBatch>* keys) {
  if (context->num_inputs() < 3) return absl::OkStatus();
  const tensorflow::Tensor& input = context->input(2);
  TF_RETURN_IF_ERROR(table.CheckKeys(input));
  if (input.dims() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys must be a vector. Received: shape=", input.shape().DebugString()));
  }
  keys->emplace(input);
  return absl::OkStatus();
}

absl::Status SnapshotFiles::Open(tensorflow::Env* env, const std::vector<std::string>& paths,
                                 SnapshotFiles* files) {
  files->paths_ = paths;
  for (const std::string& path : paths) {
    std::unique_ptr<FileSource> source;
    TF_RETURN_IF_ERROR(FileSource::Open(env, path, &source));
    std::unique_ptr<engine::SnapshotReader> reader;
    TF_RETURN_IF_ERROR(InFile(path, engine::SnapshotReader::Open(std::move(source), &reader)));
    files->readers_.push_back(reader.get());
    files->owned_.push_back(std::move(reader));
  }
  return absl::OkStatus();
}

absl::Status SnapshotFiles::Named(engine::Status status) const {
  return InFile(absl::StrJoin(paths_, ", "), std::move(status));
}

}  // namespace de::kernels
