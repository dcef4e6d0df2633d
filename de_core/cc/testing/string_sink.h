// A file in memory.
#ifndef DE_CORE_TESTING_STRING_SINK_H_
#define DE_CORE_TESTING_STRING_SINK_H_

#include <string>

#include "de_core/cc/engine/base/byte_stream.h"

namespace de::engine {

/// Appends to a string it owns.
class StringSink final : public ByteSink {
 public:
  Status Append(const void* data, size_t size) override {
    bytes_.append(static_cast<const char*>(data), size);
    return Status::Ok();
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace de::engine

#endif  // DE_CORE_TESTING_STRING_SINK_H_
