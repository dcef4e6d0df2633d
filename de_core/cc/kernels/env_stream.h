// The engine's byte streams on TensorFlow's file systems, local or remote.
#ifndef DE_CORE_KERNELS_ENV_STREAM_H_
#define DE_CORE_KERNELS_ENV_STREAM_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "de_core/cc/engine/byte_stream.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

/// A file that appears under its name only once it is whole: written beside it under a temporary
/// name, synced, renamed. Dropped without Commit, it leaves nothing behind.
class AtomicFile final : public engine::ByteSink {
 public:
  /// What a file of this machine is written by, aligned. The page cache of a file system with large
  /// folios keeps what was written by huge pages in such: a table mapped from it is looked up as
  /// fast as one in huge pages of memory. But new ones may cost more than all else of writing,
  /// where the machine is a virtual one and its host has to provide them.
  enum Block : size_t { kPlain = size_t{1} << 20, kHugePage = size_t{2} << 20 };

  static absl::Status Create(tensorflow::Env* env, const std::string& path, Block block,
                             std::unique_ptr<AtomicFile>* file);
  ~AtomicFile() override;

  engine::Status Append(const void* data, size_t size) override;
  absl::Status Commit();

 private:
  AtomicFile(tensorflow::Env* env, std::string path, std::string temporary, size_t block)
      : env_(env), path_(std::move(path)), temporary_(std::move(temporary)), block_bytes_(block) {}

  absl::Status AppendLocal(const char* data, size_t size);
  absl::Status WriteBlock();
  absl::Status SyncLocal();

  tensorflow::Env* env_;
  std::string path_, temporary_;
  size_t block_bytes_;
  int descriptor_ = -1;                             ///< of a local file
  std::vector<char> block_;                         ///< of a local file: what was not written yet
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
