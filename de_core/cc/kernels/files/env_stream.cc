#include "de_core/cc/kernels/files/env_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/memory/page_memory.h"
#include "de_core/cc/kernels/base/engine_bridge.h"
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

constexpr uint64_t kFlushBytes = uint64_t{16} << 20;
constexpr size_t kPlainBlock = size_t{1} << 20;
/// Writes that bypass the page cache must be aligned to this size, in the file and in memory.
constexpr size_t kSector = 4096;

/// Returns the path of a file on this machine, or an empty string for a remote file.
std::string LocalPath(const std::string& path) {
  const size_t scheme = path.find("://");
  if (scheme == std::string::npos) return path;
  return path.substr(0, scheme) == "file" ? path.substr(scheme + 3) : std::string();
}

absl::Status SystemError(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

/// Syncs a folder's entries to disk. Returns no error if the folder cannot be synced: it is
/// writable but not readable, or its file system does not support that.
absl::Status SyncFolder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  bool synced = descriptor >= 0 ? ::fsync(descriptor) == 0 : errno == EACCES;
  const int error = errno;
  if (descriptor >= 0) {
    synced = synced || error == EINVAL || error == ENOTSUP;
    ::close(descriptor);
  }
  errno = error;
  return synced ? absl::OkStatus()
                : SystemError(absl::StrCat("cannot sync the folder ", folder,
                                           ", so the file in it may be lost; save it again"));
}

}  // namespace

absl::Status InFile(const std::string& path, engine::Status status) {
  if (!status.ok()) status.message = absl::StrCat(path, ": ", status.message);
  return ToAbsl(std::move(status));
}

int64_t ModifiedAt(tensorflow::Env* env, const std::string& path) {
  const std::string local = LocalPath(path);
  if (!local.empty()) {  // TensorFlow's times have only a resolution of seconds
    struct stat found;
    if (::stat(local.c_str(), &found) != 0) return -1;
    return int64_t{found.st_mtim.tv_sec} * 1000000000 + found.st_mtim.tv_nsec;
  }
  tensorflow::FileStatistics found;
  return env->Stat(path, &found).ok() ? found.mtime_nsec : -1;
}

absl::Status AtomicFile::Create(tensorflow::Env* env, const std::string& path, Kind kind,
                                std::unique_ptr<AtomicFile>* file) {
  const std::string temporary =
      absl::StrCat(path, ".tmp-", absl::Hex(tensorflow::random::New64(), absl::kZeroPad16));
  file->reset(new AtomicFile(env, path, temporary));
  const std::string local = LocalPath(temporary);
  if (local.empty()) return env->NewWritableFile(temporary, &(*file)->file_);
  return (*file)->OpenLocal(local, kind);
}

absl::Status AtomicFile::OpenLocal(const std::string& local, Kind kind) {
  block_bytes_ = kind == Kind::kMapped ? engine::PageMemory::kHugePage : kPlainBlock;
  block_.reset(static_cast<char*>(std::aligned_alloc(kSector, block_bytes_)));
  if (block_ == nullptr)
    return absl::ResourceExhaustedError("no memory is left to buffer the file");
  descriptor_ = ::open(local.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return SystemError(absl::StrCat("cannot create ", temporary_));
  SetDirect(kind == Kind::kUncached);
  return absl::OkStatus();
}

void AtomicFile::SetDirect(bool direct) noexcept {
#if defined(O_DIRECT)
  if (direct_ == direct) return;
  const int flags = ::fcntl(descriptor_, F_GETFL);
  const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
  const bool set = flags >= 0 && ::fcntl(descriptor_, F_SETFL, wanted) == 0;
  direct_ = direct && set;  // not every file system supports writes that bypass the page cache
#else
  (void)direct;
#endif
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (committed_) return;
  // A destructor cannot report errors: ignore a missing file and lack of memory.
  (void)GuardedKernel([&] {
    if (file_ != nullptr) file_->Close().IgnoreError();
    return env_->DeleteFile(temporary_);
  });
}

engine::Status AtomicFile::Append(const void* data, size_t size) {
  const char* const bytes = static_cast<const char*>(data);
  return FromAbsl(file_ == nullptr ? AppendLocal(bytes, size)
                                   : file_->Append(absl::string_view(bytes, size)));
}

absl::Status AtomicFile::AppendLocal(const char* data, size_t size) {
  while (size > 0) {
    const size_t part = std::min(size, block_bytes_ - filled_);
    std::memcpy(block_.get() + filled_, data, part);
    filled_ += part;
    data += part;
    size -= part;
    if (filled_ == block_bytes_) TF_RETURN_IF_ERROR(WriteBlock());
  }
  return absl::OkStatus();
}

/// Writes the collected bytes: a whole block, or the end of the file.
absl::Status AtomicFile::WriteBlock() {
  size_t done = 0;
  while (done < filled_) {
    size_t part = filled_ - done;
    if (direct_ && part >= kSector) part -= part % kSector;
    if (part % kSector != 0 || done % kSector != 0) SetDirect(false);
    const ssize_t wrote = ::write(descriptor_, block_.get() + done, part);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL &&
        direct_) {  // the file system has larger sectors, or does not support direct writes
      SetDirect(false);
      continue;
    }
    if (wrote < 0) return SystemError(absl::StrCat("cannot write ", temporary_));
    done += static_cast<size_t>(wrote);
  }
  written_ += filled_;
  filled_ = 0;
#if defined(__linux__)
  // Ask the system to start writing to the disk now, so that the sync at the end takes less time.
  // This is a hint: ignore failures.
  if (!direct_ && written_ - flushing_ >= kFlushBytes) {
    (void)::sync_file_range(descriptor_, static_cast<off64_t>(flushing_),
                            static_cast<off64_t>(written_ - flushing_), SYNC_FILE_RANGE_WRITE);
    flushing_ = written_;
  }
#endif
  return absl::OkStatus();
}

/// Syncs the contents of a local file to disk.
absl::Status AtomicFile::SyncLocal() {
  if (written_ == 0) SetDirect(false);  // a short file stays in the cache for its readers
  TF_RETURN_IF_ERROR(WriteBlock());
  const bool synced = ::fsync(descriptor_) == 0;
  const int error = errno;
  ::close(descriptor_);
  descriptor_ = -1;
  errno = error;
  return synced ? absl::OkStatus() : SystemError(absl::StrCat("cannot sync ", path_));
}

absl::Status AtomicFile::Commit() {
  if (file_ == nullptr) {
    TF_RETURN_IF_ERROR(InFile(path_, FromAbsl(SyncLocal())));
  } else {
    TF_RETURN_IF_ERROR(InFile(path_, FromAbsl(file_->Sync())));
    TF_RETURN_IF_ERROR(InFile(path_, FromAbsl(file_->Close())));
  }
  TF_RETURN_IF_ERROR(env_->RenameFile(temporary_, path_));
  committed_ = true;
  // The folder contains the new name and must be synced separately.
  const std::string local = LocalPath(path_);
  if (local.empty()) return absl::OkStatus();
  const size_t slash = local.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : local.substr(0, slash);
  return SyncFolder(folder);
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
  // TensorFlow 2.20 and 2.21 both have this signature. 2.21 deprecates it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const absl::Status status = file_->Read(offset, size, &got, static_cast<char*>(out));
#pragma GCC diagnostic pop
  if (!status.ok()) {
    return engine::Status::DataLoss(
        absl::StrCat("cannot read ", size, " bytes at offset ", offset, ": ", status.message()));
  }
  // A file system may return its own memory instead of filling `out`.
  if (got.data() != out) std::memmove(out, got.data(), got.size());
  return engine::Status::Ok();
}

}  // namespace de::kernels
