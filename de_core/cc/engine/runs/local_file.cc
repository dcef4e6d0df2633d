#include "de_core/cc/engine/runs/local_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace de::engine {
namespace {

#if defined(O_DIRECT)
constexpr int kDirectFlag = O_DIRECT;
#else
constexpr int kDirectFlag = 0;
#endif

/// Opens a file, without the page cache if `*direct` is set and the file system allows it.
int OpenFile(const std::string& path, int flags, bool* direct) {
  *direct = *direct && kDirectFlag != 0;
  int descriptor = -1;
  if (*direct) descriptor = open(path.c_str(), flags | O_CLOEXEC | kDirectFlag, 0644);
  if (descriptor >= 0 || (*direct && errno != EINVAL)) return descriptor;
  *direct = false;
  return open(path.c_str(), flags | O_CLOEXEC, 0644);
}

/// Returns the size that direct reads of the file must be a multiple of.
uint64_t DirectAlign(int descriptor) {
  constexpr size_t kSector = 512;  // the smallest size of a disk's sectors
  const DirectBuffer buffer(DirectBuffer::kAlign);
  const ssize_t got = pread(descriptor, buffer.data(), kSector, kSector);
  return got < 0 ? DirectBuffer::kAlign : kSector;
}

}  // namespace

Status FileError(const std::string& path, const char* verb, int error) {
  const std::string text = std::string("cannot ") + verb + " the file " + path + ": " +
                           std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return Status::ResourceExhausted(text + ". Free space on its disk");
  }
  if (error == ENOENT) return Status::NotFound(text);
  return Status::Internal(text);
}

LocalFile::~LocalFile() { close(descriptor_); }

Status LocalFile::Open(const std::string& path, bool direct, std::unique_ptr<LocalFile>* file) {
  const int descriptor = OpenFile(path, O_RDONLY, &direct);
  if (descriptor < 0) return FileError(path, "open", errno);
  std::unique_ptr<LocalFile> opened;
  try {
    opened.reset(new LocalFile(path, descriptor));
  } catch (...) {
    close(descriptor);
    throw;
  }
  struct stat about;
  if (fstat(descriptor, &about) != 0) return FileError(path, "open", errno);
  opened->size_ = static_cast<uint64_t>(about.st_size);
  if (direct) opened->align_ = DirectAlign(descriptor);
  *file = std::move(opened);
  return Status::Ok();
}

Status LocalFile::ReadAligned(uint64_t offset, size_t size, size_t needed, char* out) const {
  size_t done = 0;
  while (done < needed) {
    const ssize_t got =
        pread(descriptor_, out + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path_, "read", errno);
    if (got == 0) return Status::DataLoss("the file " + path_ + " is truncated");
    done += static_cast<size_t>(got);
  }
  return Status::Ok();
}

LocalSink::~LocalSink() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!renamed_) unlink((path_ + ".tmp").c_str());
}

Status LocalSink::Create(const std::string& path, bool direct, std::unique_ptr<LocalSink>* sink) {
  const std::string name = path + ".tmp";
  const int descriptor = OpenFile(name, O_WRONLY | O_CREAT | O_TRUNC, &direct);
  if (descriptor < 0) return FileError(name, "create", errno);
  try {
    sink->reset(new LocalSink(path, descriptor, direct));
  } catch (...) {
    close(descriptor);
    unlink(name.c_str());
    throw;
  }
  return Status::Ok();
}

Status LocalSink::Append(const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const size_t part = std::min(size, kBufferBytes - used_);
    std::memcpy(buffer_.data() + used_, from, part);
    used_ += part;
    from += part;
    size -= part;
    if (used_ == kBufferBytes) DE_RETURN_IF_ERROR(Flush(used_));
  }
  return Status::Ok();
}

/// Writes `bytes` bytes of the buffer, which may include bytes after the used ones.
Status LocalSink::Flush(size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put = pwrite(descriptor_, buffer_.data() + done, bytes - done,
                               static_cast<off_t>(written_ + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && direct_) {
      // On a disk that is nearly full, the part that fits may have a size that no direct write can
      // have. The error of an ordinary write tells that the disk is full.
      direct_ = false;
      if (fcntl(descriptor_, F_SETFL, 0) == 0) continue;
    }
    if (put < 0) return FileError(path_, "write", errno);
    if (put == 0) return FileError(path_, "write", ENOSPC);
    done += static_cast<size_t>(put);
  }
  written_ += used_;
  used_ = 0;
  return Status::Ok();
}

Status LocalSink::Finish(bool sync) {
  const uint64_t size = bytes();
  const bool padded_end = direct_;
  if (used_ > 0) {
    const size_t padded =
        (used_ + DirectBuffer::kAlign - 1) / DirectBuffer::kAlign * DirectBuffer::kAlign;
    if (direct_) std::memset(buffer_.data() + used_, 0, padded - used_);
    DE_RETURN_IF_ERROR(Flush(direct_ ? padded : used_));
  }
  if (padded_end && ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    return FileError(path_, "write", errno);
  }
  if (sync && fsync(descriptor_) != 0) return FileError(path_, "write", errno);
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) return FileError(path_, "write", errno);
  if (rename((path_ + ".tmp").c_str(), path_.c_str()) != 0) {
    return FileError(path_, "rename", errno);
  }
  renamed_ = true;
  return Status::Ok();
}

Status ReplaceFile(const std::string& path, const std::string& bytes, bool sync) {
  std::unique_ptr<LocalSink> sink;
  DE_RETURN_IF_ERROR(LocalSink::Create(path, /*direct=*/false, &sink));
  DE_RETURN_IF_ERROR(sink->Append(bytes.data(), bytes.size()));
  return sink->Finish(sync);
}

Status ReadFile(const std::string& path, std::string* bytes) {
  std::unique_ptr<LocalFile> file;
  DE_RETURN_IF_ERROR(LocalFile::Open(path, /*direct=*/false, &file));
  bytes->resize(file->size());
  return file->Read(0, bytes->size(), bytes->data());
}

Status SyncDirectory(const std::string& directory) {
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError(directory, "open", errno);
  const int failed = fsync(descriptor) != 0 ? errno : 0;
  close(descriptor);
  return failed == 0 ? Status::Ok() : FileError(directory, "write", failed);
}

Status ListFiles(const std::string& directory, std::vector<std::string>* names) {
  DIR* const stream = opendir(directory.c_str());
  if (stream == nullptr) return FileError(directory, "open", errno);
  try {
    while (const dirent* entry = readdir(stream)) names->emplace_back(entry->d_name);
  } catch (...) {
    closedir(stream);
    throw;
  }
  closedir(stream);
  return Status::Ok();
}

}  // namespace de::engine
