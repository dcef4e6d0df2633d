// The engine's byte streams on TensorFlow's file systems, local or remote.
#ifndef DE_CORE_KERNELS_ENV_STREAM_H_
#define DE_CORE_KERNELS_ENV_STREAM_H_

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "de_core/cc/engine/base/byte_stream.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

/// A file that appears under its name only once it is whole: written beside it under a temporary
/// name, synced, renamed. Dropped without Commit, it leaves nothing behind.
class AtomicFile final : public engine::ByteSink {
 public:
  /// How a file of this machine is written, by aligned blocks.
  enum class Kind {
    /// Through the page cache, for those who read it soon.
    kCached,
    /// Past the page cache, where the file system has such a way. What nobody reads soon then takes
    /// no memory from the model; and where a virtual machine's host has to provide that memory, it
    /// may cost more than all else of writing.
    kUncached,
    /// By huge pages: the page cache of a file system with large folios keeps them as such, and a
    /// table mapped from it is looked up as fast as one in huge pages of memory.
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
  int descriptor_ = -1;                ///< of a local file
  bool direct_ = false;                ///< it is written past the page cache
  std::unique_ptr<char, Free> block_;  ///< of a local file: what was not written yet
  size_t block_bytes_ = 0;
  size_t filled_ = 0;                               ///< bytes of the block
  uint64_t written_ = 0;                            ///< bytes of a local file
  uint64_t flushing_ = 0;                           ///< bytes the system was told to write out
  std::unique_ptr<tensorflow::WritableFile> file_;  ///< of any other
  bool committed_ = false;
};

/// An open file read at any offset.
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

/// When a file was changed last, in nanoseconds as exact as the file system has them; -1 where
/// there is none.
int64_t ModifiedAt(tensorflow::Env* env, const std::string& path);

/// The engine's status with the file's name in front.
absl::Status InFile(const std::string& path, engine::Status status);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_ENV_STREAM_H_
