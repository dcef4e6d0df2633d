#include "de_core/cc/engine/base/guard.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace de::engine {
namespace {

TEST(Guard, a_status_comes_back_as_it_is) {
  EXPECT_TRUE(Guarded([] { return Status::Ok(); }).ok());
  const Status status = Guarded([] { return Status::DataLoss("torn. Received: x=1"); });
  EXPECT_EQ(status.code, Code::kDataLoss);
  EXPECT_EQ(status.message, "torn. Received: x=1");
}

TEST(Guard, want_of_memory_is_named_with_its_remedy) {
  const Status status = Guarded([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status.code, Code::kResourceExhausted);
  EXPECT_NE(status.message.find("bound the table's size"), std::string::npos) << status.message;
}

TEST(Guard, what_else_the_library_throws_is_internal_and_keeps_its_words) {
  const Status status = Guarded([]() -> Status { throw std::length_error("too long"); });
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_EQ(status.message, "too long");
}

}  // namespace
}  // namespace de::engine
