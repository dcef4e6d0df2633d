// A file on a nearly full disk.
#ifndef DE_CORE_TESTING_FULL_SINK_H_
#define DE_CORE_TESTING_FULL_SINK_H_

#include <cstddef>
#include <string>

#include "de_core/cc/engine/base/byte_stream.h"

namespace de::engine::testing {

/// Stores `room` bytes, then fails.
class FullSink final : public ByteSink {
 public:
  explicit FullSink(size_t room) : room_(room) {}
  Status Append(const void* data, size_t size) override {
    if (size > room_ - bytes.size()) return Status::ResourceExhausted("no room");
    bytes.append(static_cast<const char*>(data), size);
    return Status::Ok();
  }

  std::string bytes;

 private:
  const size_t room_;
};

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_FULL_SINK_H_
