// The policy for unknown keys in a file's metadata.
#include "de_core/cc/engine/policy/oov_policy.h"

#include <gtest/gtest.h>

namespace de::engine {
namespace {

using Kind = OovPolicy::Kind;
using Metadata = std::map<std::string, std::string>;

TEST(OovPolicy, is_read_as_it_was_stored) {
  const std::string row("\0\xff\x80", 3);
  for (const Kind kind :
       {Kind::kInitial, Kind::kZeros, Kind::kConstant, Kind::kRow, Kind::kError}) {
    Metadata metadata = {{"table", "users"}};
    OovPolicy{kind, row}.Store(&metadata);
    EXPECT_EQ(metadata["oov"], NameOf(kind));
    EXPECT_EQ(metadata["table"], "users");
    const bool valued = kind == Kind::kConstant || kind == Kind::kRow;
    EXPECT_EQ(metadata.count("oov_value"), valued ? 1U : 0U) << NameOf(kind);
    OovPolicy read{Kind::kError, "old"};
    ASSERT_TRUE(OovPolicy::Load(metadata, &read).ok());
    EXPECT_EQ(read.kind, kind);
    EXPECT_EQ(read.value, valued ? row : "");
  }
}

TEST(OovPolicy, leaves_no_value_of_the_one_before) {
  Metadata metadata;
  OovPolicy{Kind::kConstant, "1.5"}.Store(&metadata);
  OovPolicy{Kind::kZeros, ""}.Store(&metadata);
  EXPECT_EQ(metadata, (Metadata{{"oov", "zeros"}}));
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
