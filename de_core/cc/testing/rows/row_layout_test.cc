// The positions of a row's parts.
#include "de_core/cc/engine/rows/row_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace de::engine {
namespace {

constexpr DType kTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kHalf,
                            DType::kBFloat16, DType::kInt8,    DType::kInt32,
                            DType::kInt64,    DType::kBool,    DType::kString};

TEST(RowLayout, IsTheValueAloneWithoutSlots) {
  for (const DType dtype : kTypes) {
    for (const size_t dim : {1, 3, 8, 4096}) {
      const RowLayout layout(KeyType::kInt64, dtype, dim);
      EXPECT_EQ(layout.value_bytes(), dim * SizeOf(dtype));
      EXPECT_EQ(layout.stride(), layout.value_bytes());
    }
  }
}

TEST(RowLayout, PartsAreAlignedAndDoNotOverlap) {
  for (const KeyType key : {KeyType::kInt64, KeyType::kString}) {
    for (const DType dtype : kTypes) {
      RowLayout layout(key, dtype, 3);
      layout.Append("a", {{"byte", DType::kInt8, 1, 0}, {"wide", DType::kFloat64, 3, 0}});
      layout.Append("b", {{"m", DType::kFloat32, 5, 0}});
      size_t end = layout.value_bytes();
      for (const RowSlot& slot : layout.slots()) {
        EXPECT_GE(slot.offset, end);
        EXPECT_EQ(slot.offset % SizeOf(slot.spec.dtype), 0U);
        end = slot.offset + slot.bytes();
        EXPECT_EQ(layout.stride() % SizeOf(slot.spec.dtype), 0U);
      }
      EXPECT_EQ(layout.stride() % SizeOf(dtype), 0U);
      if (key == KeyType::kString) {
        EXPECT_GE(layout.key_offset(), end);
        EXPECT_EQ(layout.key_offset() % 8, 0U);
        EXPECT_EQ(layout.key_offset() + 8, layout.stride());
        EXPECT_EQ(layout.stride() % 8, 0U);
      } else {
        EXPECT_GE(layout.stride(), end);
      }
    }
  }
}

TEST(RowLayout, AppendingKeepsWhatIsThere) {
  RowLayout layout(KeyType::kInt64, DType::kHalf, 3);
  layout.Append("first", {{"m", DType::kFloat32, 3, 0.5}});
  const size_t offset = layout.FindSlot("first", "m")->offset;
  layout.Append("second", {{"m", DType::kFloat64, 3, 2}});
  EXPECT_EQ(layout.FindSlot("first", "m")->offset, offset);
  EXPECT_GT(layout.FindSlot("second", "m")->offset, offset);
  EXPECT_EQ(layout.FindSlot("third", "m"), nullptr);
  EXPECT_EQ(layout.FindSlot("first", "n"), nullptr);
  EXPECT_TRUE(layout.HasOwner("first"));
  EXPECT_FALSE(layout.HasOwner("third"));
}

TEST(RowLayout, FillsSlotsFromTheOneAskedFor) {
  RowLayout layout(KeyType::kString, DType::kFloat32, 1);
  layout.Append("a", {{"x", DType::kFloat32, 2, 1.5}});
  layout.Append("b", {{"y", DType::kFloat32, 1, -2}});
  std::vector<float> row(layout.stride() / sizeof(float), 9);
  layout.FillSlots(reinterpret_cast<char*>(row.data()), 1);
  EXPECT_EQ(std::vector<float>(row.begin(), row.begin() + 4), (std::vector<float>{9, 9, 9, -2}));
  layout.FillSlots(reinterpret_cast<char*>(row.data()), 0);
  EXPECT_EQ(std::vector<float>(row.begin(), row.begin() + 4),
            (std::vector<float>{9, 1.5, 1.5, -2}));
  EXPECT_EQ(row[layout.key_offset() / sizeof(float)], 9) << "the key is not a slot";
}

}  // namespace
}  // namespace de::engine
