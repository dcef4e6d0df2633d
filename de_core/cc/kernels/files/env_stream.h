// Implements the engine's byte streams on TensorFlow's file systems, local or remote.
#ifndef DE_CORE_KERNELS_ENV_STREAM_H_
#define DE_CORE_KERNELS_ENV_STREAM_H_

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "de_core/cc/engine/base/byte_stream.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

/// Writes a file atomically: to a temporary name beside it, then sync, then rename. Destroyed
/// without Commit, it leaves no file.
class AtomicFile final : public engine::ByteSink {
 public:
  /// How to write a local file. Writes are aligned blocks.
  enum class Kind {
    /// Through the page cache, for files that will be read soon.
    kCached,
    /// Bypasses the page cache if the file system supports that, so that files that are not read
    /// soon take no memory from the model. It also saves time on some virtual machines: providing
    /// memory for the page cache can cost their host more than all the rest of writing.
    kUncached,
    /// In huge pages: file systems with large folios keep such a file in huge pages of the page
    /// cache. Lookups in a table mapped from it are as fast as in huge pages of memory.
    kMapped,
  };

  static absl::Status Create(tensorflow::Env* env, const std::string& path, Kind kind,
                             std::unique_ptr<AtomicFile>* file);
  ~AtomicFile() override;

  engine::Status Append(const void* data, size_t size) override;
  absl::Status Commit();

 private:
  struct Free {
    void operator()(char* block) const noexcept { std::free(block); }
  };

  AtomicFile(tensorflow::Env* env, std::string path, std::string temporary)
      : env_(env), path_(std::move(path)), temporary_(std::move(temporary)) {}

  absl::Status OpenLocal(const std::string& local, Kind kind);
  absl::Status AppendLocal(const char* data, size_t size);
  absl::Status WriteBlock();
  absl::Status SyncLocal();
  void SetDirect(bool direct) noexcept;

  tensorflow::Env* env_;
  std::string path_, temporary_;
  int descriptor_ = -1;                ///< descriptor of a local file
  bool direct_ = false;                ///< whether writes bypass the page cache
  std::unique_ptr<char, Free> block_;  ///< bytes of a local file that are not written yet
  size_t block_bytes_ = 0;
  size_t filled_ = 0;      ///< bytes in the block
  uint64_t written_ = 0;   ///< bytes written to a local file
  uint64_t flushing_ = 0;  ///< bytes that the system was asked to write to the disk
  std::unique_ptr<tensorflow::WritableFile> file_;  ///< the file, if it is not local
  bool committed_ = false;
};

/// An open file, readable at any offset.
class FileSource final : public engine::ByteSource {
 public:
  static absl::Status Open(tensorflow::Env* env, const std::string& path,
                           std::unique_ptr<FileSource>* source);

  uint64_t size() const noexcept override { return size_; }
  engine::Status Read(uint64_t offset, size_t size, void* out) const override;

 private:
  std::string path_;
  std::unique_ptr<tensorflow::RandomAccessFile> file_;
  uint64_t size_ = 0;
};

/// Returns the time of a file's last change in nanoseconds, in the resolution of the file system;
/// -1 if the file does not exist.
int64_t ModifiedAt(tensorflow::Env* env, const std::string& path);

/// Prepends the file's name to the engine's status.
absl::Status InFile(const std::string& path, engine::Status status);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_ENV_STREAM_H_
