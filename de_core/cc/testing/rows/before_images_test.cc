// Copies of rows for a consistent save, taken before the rows change.
#include "de_core/cc/engine/rows/before_images.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

namespace de::engine {
namespace {

/// Returns the word of the i-th key of shard 0.
uint64_t WordOf(uint64_t i) { return UnMix64(Mix64(i) >> 4); }

class BeforeImagesTest : public ::testing::TestWithParam<size_t> {
 protected:
  const RowLayout layout_{KeyType::kInt64, DType::kFloat32, GetParam()};

  void Change(BeforeImages* held, uint32_t i, float now) const {
    const std::vector<float> row(layout_.dim(), now);
    held->BeforeChange(WordOf(i), Mix64(WordOf(i)), i, reinterpret_cast<const char*>(row.data()));
  }
};

TEST_P(BeforeImagesTest, the_first_change_is_kept_and_found_by_its_hash) {
  HeldBudget budget(layout_, uint64_t{1} << 30);
  BeforeImages held(layout_, 10, &budget);
  constexpr uint32_t kRows = 3000;
  for (uint32_t i = 0; i < kRows; ++i) Change(&held, i, static_cast<float>(i));
  for (uint32_t i = 0; i < kRows; ++i) Change(&held, i, -1);
  held.Inserted(kRows);
  Change(&held, kRows, -1);
  EXPECT_TRUE(held.IsTouched(kRows));
  EXPECT_FALSE(held.IsTouched(kRows + 1));

  std::map<uint64_t, float> seen;
  const uint64_t last = ~uint64_t{0} >> 4;
  for (uint64_t part = 0; part < 7; ++part) {
    const uint64_t begin = part == 0 ? 0 : last / 7 * part + 1;
    const uint64_t end = part == 6 ? last : last / 7 * (part + 1);
    held.ForEach(begin, end, [&](uint64_t word, const char* row, const std::string* texts) {
      EXPECT_EQ(texts, nullptr);
      EXPECT_GE(Mix64(word), begin);
      EXPECT_LE(Mix64(word), end);
      std::vector<float> values(layout_.dim());
      std::memcpy(values.data(), row, layout_.value_bytes());
      EXPECT_EQ(values, std::vector<float>(layout_.dim(), values[0]));
      EXPECT_TRUE(seen.emplace(word, values[0]).second) << "a copy was visited twice";
    });
  }
  ASSERT_EQ(seen.size(), kRows);
  for (uint32_t i = 0; i < kRows; ++i) EXPECT_EQ(seen[WordOf(i)], static_cast<float>(i));
}

TEST_P(BeforeImagesTest, what_the_save_has_collected_is_not_kept) {
  HeldBudget budget(layout_, uint64_t{1} << 30);
  BeforeImages held(layout_, 2000, &budget);
  budget.collected = uint64_t{1} << 59;  // half of the shard
  for (uint32_t i = 0; i < 2000; ++i) Change(&held, i, 1);
  size_t copies = 0;
  held.ForEach(0, ~uint64_t{0} >> 4, [&](uint64_t word, const char*, const std::string*) {
    EXPECT_GE(Mix64(word), uint64_t{1} << 59);
    ++copies;
  });
  EXPECT_GT(copies, 800U);
  EXPECT_LT(copies, 1200U);
}

TEST_P(BeforeImagesTest, copies_are_charged_until_they_are_gone) {
  const uint64_t copy = BeforeImages::BytesACopy(layout_);
  HeldBudget budget(layout_, 1000 * copy);
  {
    BeforeImages held(layout_, 2000, &budget);
    for (uint32_t i = 0; i < 900; ++i) Change(&held, i, 1);
    EXPECT_GE(budget.bytes, 900 * copy);
    EXPECT_LE(budget.bytes, 916 * copy);
    EXPECT_FALSE(budget.lost());
    for (uint32_t i = 900; i < 1001; ++i) Change(&held, i, 1);
    EXPECT_TRUE(budget.lost());
  }
  EXPECT_EQ(budget.bytes, 0U);
  EXPECT_GE(budget.peak, 1000 * copy);
}

// One copy per chunk, several, and many.
INSTANTIATE_TEST_SUITE_P(Dims, BeforeImagesTest, ::testing::Values(1, 300, 20000));

}  // namespace
}  // namespace de::engine
