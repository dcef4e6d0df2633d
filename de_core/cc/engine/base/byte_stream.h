// Sinks and sources of snapshot bytes. The kernels implement them on TensorFlow's file systems.
// SpanSource below is a source in memory.
#ifndef DE_CORE_ENGINE_BYTE_STREAM_H_
#define DE_CORE_ENGINE_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Receives the bytes of a file in order. Used by one thread at a time.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  /// Appends `size` bytes. The caller must not use the sink after an error.
  virtual Status Append(const void* data, size_t size) = 0;
};

/// Bytes that can be read at any offset. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const noexcept = 0;
  /// Fills out[0, size) from `offset`. Reading past the end is an error, never a short read.
  virtual Status Read(uint64_t offset, size_t size, void* out) const = 0;
  /// Returns a pointer to all bytes if they are in memory (a mapped file), otherwise nullptr.
  virtual const char* data() const noexcept { return nullptr; }
};

/// Reads memory that the caller owns and must keep while this object is used.
class SpanSource final : public ByteSource {
 public:
  SpanSource(const char* data, size_t size) noexcept : data_(data), size_(size) {}

  uint64_t size() const noexcept override { return size_; }
  const char* data() const noexcept override { return data_; }
  Status Read(uint64_t offset, size_t size, void* out) const override {
    if (offset > size_ || size > size_ - offset) {
      return Status::DataLoss(
          "a read must end inside the file. Received: offset=" + std::to_string(offset) +
          ", bytes=" + std::to_string(size) + ", file size=" + std::to_string(size_));
    }
    if (size > 0) std::memcpy(out, data_ + offset, size);
    return Status::Ok();
  }

 private:
  const char* data_;
  size_t size_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_BYTE_STREAM_H_
