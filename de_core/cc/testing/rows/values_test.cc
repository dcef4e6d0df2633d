#include "de_core/cc/engine/rows/values.h"

#include <gtest/gtest.h>

#include <memory>

namespace de::engine {
namespace {

TEST(Values, rows_of_any_width_are_copied_to_their_last_byte_and_no_further) {
  for (size_t bytes = 0; bytes <= 300; ++bytes) {
    // Blocks of exactly this size, so that a sanitizer detects the first byte read past the end.
    const std::unique_ptr<char[]> from(new char[bytes]);
    const std::unique_ptr<char[]> to(new char[bytes + 2]);
    for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<char>(i * 7 + bytes);
    std::memset(to.get(), 0x55, bytes + 2);
    CopyBytes(to.get() + 1, from.get(), bytes);  // rows need not be aligned
    EXPECT_EQ(std::memcmp(to.get() + 1, from.get(), bytes), 0) << bytes;
    EXPECT_EQ(to[0], 0x55) << bytes;
    EXPECT_EQ(to[bytes + 1], 0x55) << bytes;
  }
}

}  // namespace
}  // namespace de::engine
