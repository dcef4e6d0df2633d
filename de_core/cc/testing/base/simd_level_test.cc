// Selection of the SIMD level by the processor and by DE_SIMD.
#include "de_core/cc/engine/base/simd_level.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "de_core/cc/engine/table/table.h"

namespace de::engine {
namespace {

constexpr const char* kNames[] = {"scalar", "avx2", "avx512"};

TEST(SimdLevel, IsTheBestWhereNothingIsSaid) {
  for (const char* name : {static_cast<const char*>(nullptr), ""}) {
    SimdLevel level = SimdLevel::kScalar;
    ASSERT_TRUE(ParseSimdLevel(name, &level).ok());
    EXPECT_EQ(level, BestSimdLevel());
  }
}

TEST(SimdLevel, IsEachThatTheProcessorHasAndNoOther) {
  for (int i = 0; i < 3; ++i) {
    SimdLevel level;
    const Status status = ParseSimdLevel(kNames[i], &level);
    const bool has = static_cast<SimdLevel>(i) <= BestSimdLevel();
    EXPECT_EQ(status.ok(), has) << status.message;
    EXPECT_EQ(level, has ? static_cast<SimdLevel>(i) : BestSimdLevel());
    if (!has) {
      EXPECT_EQ(status.code, Code::kInvalidArgument);
      EXPECT_NE(status.message.find(std::string("Received: DE_SIMD=") + kNames[i]),
                std::string::npos)
          << status.message;
    }
  }
}

TEST(SimdLevel, OfAnotherNameIsAnError) {
  for (const char* name : {"AVX2", "avx", "avx5123", " scalar", "3"}) {
    SimdLevel level;
    const Status status = ParseSimdLevel(name, &level);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << name;
    EXPECT_EQ(level, BestSimdLevel());
  }
}

TEST(SimdLevel, OfAnUnknownNameStopsEveryNewTable) {
  const char* given = std::getenv("DE_SIMD");
  const std::string before = given == nullptr ? "" : given;
  ASSERT_EQ(setenv("DE_SIMD", "mmx", 1), 0);
  std::unique_ptr<Table> table;
  const Status status = Table::Create({}, &table);
  ASSERT_EQ(setenv("DE_SIMD", before.c_str(), 1), 0);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.message.find("Received: DE_SIMD=mmx"), std::string::npos) << status.message;
  EXPECT_TRUE(Table::Create({}, &table).ok());
}

}  // namespace
}  // namespace de::engine
