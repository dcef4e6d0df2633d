// A file on a nearly full disk.
#ifndef DE_CORE_TESTING_FULL_SINK_H_
#define DE_CORE_TESTING_FULL_SINK_H_

#include <cstddef>

#include "de_core/cc/engine/base/byte_stream.h"

namespace de::engine::testing {

/// Accepts a limited number of bytes, then fails.
class FullSink final : public ByteSink {
 public:
  explicit FullSink(size_t room) : room_(room) {}
  Status Append(const void*, size_t size) override {
    if (size > room_) return Status::ResourceExhausted("no room");
    room_ -= size;
    return Status::Ok();
  }

 private:
  size_t room_;
};

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_FULL_SINK_H_
