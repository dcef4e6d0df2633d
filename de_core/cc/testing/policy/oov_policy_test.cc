// The policy for unknown keys in a file's metadata.
#include "de_core/cc/engine/policy/oov_policy.h"

#include <gtest/gtest.h>

namespace de::engine {
namespace {

using Kind = OovPolicy::Kind;

TEST(OovPolicy, is_read_from_metadata) {
  const std::string row("\0\xff\x80", 3);
  for (const Kind kind :
       {Kind::kInitial, Kind::kZeros, Kind::kConstant, Kind::kRow, Kind::kError}) {
    OovPolicy read{Kind::kError, "old"};
    ASSERT_TRUE(OovPolicy::Load({{"oov", std::string(NameOf(kind))}}, &read).ok());
    EXPECT_EQ(read.kind, kind);
    EXPECT_EQ(read.value, "");
    ASSERT_TRUE(OovPolicy::Load({{"oov", "row"}, {"oov_value", row}}, &read).ok());
    EXPECT_EQ(read.value, row);
  }
}

TEST(OovPolicy, is_initial_where_none_is_stored) {
  OovPolicy policy{Kind::kRow, "x"};
  ASSERT_TRUE(OovPolicy::Load({{"oov_value", "7"}}, &policy).ok());
  EXPECT_EQ(policy.kind, Kind::kInitial);
  EXPECT_EQ(policy.value, "");
}

TEST(OovPolicy, another_name_is_named) {
  for (const std::string name : {"", "Zeros", "zeros ", "unknown"}) {
    OovPolicy policy;
    const Status status = OovPolicy::Load({{"oov", name}}, &policy);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << name;
    EXPECT_NE(status.message.find("Received: oov=" + name), std::string::npos) << status.message;
  }
}

}  // namespace
}  // namespace de::engine
