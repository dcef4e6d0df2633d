#include "de_core/cc/kernels/env_stream.h"

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/engine_bridge.h"
#include "tensorflow/core/platform/random.h"

namespace de::kernels {
namespace {

engine::Status FromAbsl(const absl::Status& status) {
  if (status.ok()) return engine::Status::Ok();
  std::string text(status.message());
  if (absl::IsResourceExhausted(status)) {
    return engine::Status::ResourceExhausted(text + ": free some disk space and try again");
  }
  if (absl::IsNotFound(status)) return engine::Status::NotFound(std::move(text));
  return engine::Status::Internal(std::move(text));
}

}  // namespace

absl::Status InFile(const std::string& path, engine::Status status) {
  if (!status.ok()) status.message = absl::StrCat(path, ": ", status.message);
  return ToAbsl(std::move(status));
}

absl::Status AtomicFile::Create(tensorflow::Env* env, const std::string& path,
                                std::unique_ptr<AtomicFile>* file) {
  const std::string temporary =
      absl::StrCat(path, ".tmp-", absl::Hex(tensorflow::random::New64(), absl::kZeroPad16));
  file->reset(new AtomicFile(env, path, temporary));
  return env->NewWritableFile(temporary, &(*file)->file_);
}

AtomicFile::~AtomicFile() {
  if (committed_) return;
  if (file_ != nullptr) file_->Close().IgnoreError();
  // There may be no such file, and nobody left to tell.
  env_->DeleteFile(temporary_).IgnoreError();
}

engine::Status AtomicFile::Append(const void* data, size_t size) {
  return FromAbsl(file_->Append(absl::string_view(static_cast<const char*>(data), size)));
}

absl::Status AtomicFile::Commit() {
  TF_RETURN_IF_ERROR(ToAbsl(FromAbsl(file_->Sync())));
  TF_RETURN_IF_ERROR(ToAbsl(FromAbsl(file_->Close())));
  TF_RETURN_IF_ERROR(env_->RenameFile(temporary_, path_));
  committed_ = true;
  return absl::OkStatus();
}

absl::Status FileSource::Open(tensorflow::Env* env, const std::string& path,
                              std::unique_ptr<FileSource>* source) {
  auto opened = std::make_unique<FileSource>();
  uint64_t size = 0;
  TF_RETURN_IF_ERROR(env->GetFileSize(path, &size));
  TF_RETURN_IF_ERROR(env->NewRandomAccessFile(path, &opened->file_));
  opened->path_ = path;
  opened->size_ = size;
  *source = std::move(opened);
  return absl::OkStatus();
}

engine::Status FileSource::Read(uint64_t offset, size_t size, void* out) const {
  absl::string_view got;
  // The signature that TensorFlow 2.20 and 2.21 share; 2.21 calls it deprecated.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const absl::Status status = file_->Read(offset, size, &got, static_cast<char*>(out));
#pragma GCC diagnostic pop
  if (!status.ok()) {
    return engine::Status::DataLoss(
        absl::StrCat("cannot read ", size, " bytes at offset ", offset, ": ", status.message()));
  }
  // A file system may hand out memory of its own.
  if (got.data() != out) std::memmove(out, got.data(), got.size());
  return engine::Status::Ok();
}

}  // namespace de::kernels
