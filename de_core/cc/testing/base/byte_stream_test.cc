// A read from a span of memory either lies entirely inside the span or returns an error.
#include "de_core/cc/engine/base/byte_stream.h"

#include <gtest/gtest.h>

#include "de_core/cc/testing/string_sink.h"

namespace de::engine {
namespace {

TEST(SpanSource, reads_what_lies_inside_and_nothing_else) {
  StringSink sink;
  ASSERT_TRUE(sink.Append("abc", 3).ok());
  ASSERT_TRUE(sink.Append(nullptr, 0).ok());
  ASSERT_TRUE(sink.Append("\0d", 2).ok());
  const SpanSource source(sink.bytes().data(), sink.bytes().size());
  ASSERT_EQ(source.size(), 5U);
  EXPECT_EQ(source.data(), sink.bytes().data());
  for (uint64_t offset = 0; offset <= 6; ++offset) {
    for (size_t size = 0; size <= 7; ++size) {
      std::string out(size, '#');
      const Status status = source.Read(offset, size, out.data());
      if (offset + size <= 5) {
        ASSERT_TRUE(status.ok()) << status.message;
        EXPECT_EQ(out, sink.bytes().substr(offset, size));
      } else {
        EXPECT_EQ(status.code, Code::kDataLoss) << offset << " " << size;
        EXPECT_EQ(out, std::string(size, '#')) << "never a short read";
      }
    }
  }
}

TEST(SpanSource, offsets_and_sizes_whose_sum_overflows_are_refused) {
  const SpanSource source("abcde", 5);
  char out = '#';
  for (const uint64_t offset : {uint64_t{3}, uint64_t{6}, ~uint64_t{0}, ~uint64_t{0} - 2}) {
    const Status status = source.Read(offset, ~size_t{0} - 1, &out);
    EXPECT_EQ(status.code, Code::kDataLoss);
    EXPECT_NE(status.message.find("offset=" + std::to_string(offset)), std::string::npos);
  }
  EXPECT_EQ(source.Read(~uint64_t{0}, 2, &out).code, Code::kDataLoss);
  EXPECT_EQ(SpanSource(nullptr, 0).Read(0, 0, nullptr).code, Code::kOk);
}

}  // namespace
}  // namespace de::engine
