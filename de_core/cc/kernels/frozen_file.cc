#include "de_core/cc/kernels/frozen_file.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "de_core/cc/kernels/env_stream.h"

namespace de::kernels {
namespace {

// Keys a thread must have to be worth waking.
constexpr size_t kKeysATask = 4096;

std::string JsonString(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

}  // namespace

absl::Status FrozenFile::Open(tensorflow::Env* env, const std::string& path,
                              std::shared_ptr<const FrozenFile>* file) {
  auto opened = std::make_shared<FrozenFile>();
  opened->path_ = path;
  TF_RETURN_IF_ERROR(env->NewReadOnlyMemoryRegionFromFile(path, &opened->region_));
  engine::FrozenOptions options;
  const char* verify = std::getenv("DE_VERIFY");
  if (verify != nullptr && absl::string_view(verify) == "full") {
    options.verify = engine::SnapshotVerify::kFull;
  }
  TF_RETURN_IF_ERROR(
      InFile(path, engine::FrozenTable::Open(static_cast<const char*>(opened->region_->data()),
                                             opened->region_->length(), options, &opened->table_)));
  *file = std::move(opened);
  return absl::OkStatus();
}

absl::Status FrozenFile::Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                              engine::Executor* executor) const {
  const size_t row_bytes = table_->value_bytes();
  const size_t dim = table_->dim();
  const auto range = [&](size_t begin, size_t end) -> engine::Status {
    const engine::Keys part = keys.Slice(begin, end - begin);
    bool* part_found = found == nullptr ? nullptr : found + begin;
    if (out.strings == nullptr) {
      return table_->Find(part, out.data + begin * row_bytes, part_found);
    }
    std::vector<std::string_view> views(part.size * dim);
    DE_RETURN_IF_ERROR(table_->FindStrings(part, views.data(), part_found));
    for (size_t i = 0; i < views.size(); ++i) out.strings->Set(begin * dim + i, views[i]);
    return engine::Status::Ok();
  };
  const size_t tasks = std::min(executor->threads(), keys.size / kKeysATask);
  if (tasks <= 1) return InFile(path_, range(0, keys.size));
  std::mutex mutex;
  engine::Status failure;
  executor->Run(tasks, [&](size_t task) {
    engine::Status status = range(keys.size * task / tasks, keys.size * (task + 1) / tasks);
    if (status.ok()) return;
    const std::lock_guard<std::mutex> guard(mutex);
    if (failure.ok()) failure = std::move(status);
  });
  return InFile(path_, std::move(failure));
}

std::string FrozenFile::StatsJsonFields() const {
  const engine::FrozenStats stats = table_->stats();
  const engine::SnapshotHeader& header = table_->header();
  std::string metadata;
  for (const auto& [key, value] : header.metadata) {
    absl::StrAppend(&metadata, ", ", JsonString(key), ": ", JsonString(value));
  }
  return absl::StrCat("\"bytes\": ", stats.file_bytes, ", \"index_bytes\": ", stats.index_bytes,
                      ", \"row_bytes\": ", stats.row_bytes,
                      ", \"string_bytes\": ", stats.string_bytes,
                      ", \"generation\": ", header.sequence, ", \"id\": \"",
                      absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<const char*>(header.id.data()), header.id.size())),
                      "\", \"created_micros\": ", header.created_micros, metadata);
}

}  // namespace de::kernels
