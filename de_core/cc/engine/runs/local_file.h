// Files on a local disk: written once from start to end, then read at any offset. Both bypass the
// page cache where the file system allows it (O_DIRECT). Errors name the file.
#ifndef DE_CORE_ENGINE_LOCAL_FILE_H_
#define DE_CORE_ENGINE_LOCAL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/byte_stream.h"
#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Returns an error for a failed system call: `verb` names it, such as "write".
Status FileError(const std::string& path, const char* verb, int error);

/// Memory that a direct read or write can use. Its contents are undefined.
class DirectBuffer {
 public:
  static constexpr size_t kAlign = 4096;

  DirectBuffer() = default;
  explicit DirectBuffer(size_t bytes)
      : data_(static_cast<char*>(::operator new(bytes, std::align_val_t{kAlign}))), bytes_(bytes) {}
  ~DirectBuffer() {
    if (data_ != nullptr) ::operator delete(data_, std::align_val_t{kAlign});
  }
  DirectBuffer(DirectBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DirectBuffer& operator=(DirectBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  /// Makes the buffer hold at least `bytes`. Loses the contents if it grows.
  void Reserve(size_t bytes) {
    if (bytes > bytes_) *this = DirectBuffer(bytes);
  }
  char* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

/// An open file. Thread-safe.
class LocalFile final : public ByteSource {
 public:
  ~LocalFile() override;

  /// Opens a file to read. With `direct`, bypasses the page cache if the file system allows it.
  static Status Open(const std::string& path, bool direct, std::unique_ptr<LocalFile>* file);

  uint64_t size() const noexcept override { return size_; }
  const std::string& path() const noexcept { return path_; }
  int descriptor() const noexcept { return descriptor_; }
  bool direct() const noexcept { return align_ > 1; }
  /// Reads of a direct file start and end at multiples of this number of bytes.
  uint64_t align() const noexcept { return align_; }

  /// Reads [offset, offset + size). If the file is direct, all three must be multiples of align(),
  /// except that the range may end behind the end of the file. Requires that the file has at least
  /// `needed` of these bytes.
  Status ReadAligned(uint64_t offset, size_t size, size_t needed, char* out) const;

  /// Not for direct files.
  Status Read(uint64_t offset, size_t size, void* out) const override {
    return ReadAligned(offset, size, size, static_cast<char*>(out));
  }

 private:
  LocalFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
  uint64_t size_ = 0;
  uint64_t align_ = 1;
};

/// Writes a new file. Removes it unless Finish was called.
class LocalSink final : public ByteSink {
 public:
  ~LocalSink() override;

  /// Creates the file `path`.tmp.
  static Status Create(const std::string& path, bool direct, std::unique_ptr<LocalSink>* sink);

  Status Append(const void* data, size_t size) override;
  /// Writes what is buffered and renames the file to its path. With `sync`, waits until the disk
  /// has the file.
  Status Finish(bool sync);
  uint64_t bytes() const noexcept { return written_ + used_; }

 private:
  LocalSink(std::string path, int descriptor, bool direct)
      : path_(std::move(path)), descriptor_(descriptor), direct_(direct), buffer_(kBufferBytes) {}

  static constexpr size_t kBufferBytes = size_t{1} << 20;

  Status Flush(size_t bytes);

  std::string path_;
  int descriptor_;
  bool direct_;
  DirectBuffer buffer_;
  size_t used_ = 0;
  uint64_t written_ = 0;
  bool renamed_ = false;
};

/// Replaces a small file: all of it or nothing.
Status ReplaceFile(const std::string& path, const std::string& bytes, bool sync);
/// Reads a small file. NotFound if it does not exist.
Status ReadFile(const std::string& path, std::string* bytes);
/// Waits until the disk has the names of a directory's files.
Status SyncDirectory(const std::string& directory);
/// Returns the names of the files in a directory.
Status ListFiles(const std::string& directory, std::vector<std::string>* names);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_LOCAL_FILE_H_
