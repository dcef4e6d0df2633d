// Rows converted between layouts, compared with explicit conversions.
#include "de_core/cc/engine/rows/row_converter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "de_core/cc/engine/snapshot/snapshot_header.h"

namespace de::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

RowLayout Plain(DType dtype, size_t dim = 3) { return {KeyType::kInt64, dtype, dim}; }

/// int8 values with a scale per row, as files store them.
RowLayout Scaled(size_t dim = 3) {
  RowLayout layout(KeyType::kInt64, DType::kInt8, dim);
  layout.Append(kScaleOwner, {{std::string(kScaleName), DType::kFloat32, 1, 1.0}});
  return layout;
}

Status Create(const RowLayout& from, const RowLayout& to, bool slots = true) {
  RowConverter converter;
  return RowConverter::Create(from, to, slots, &converter);
}

RowConverter Converter(const RowLayout& from, const RowLayout& to, bool slots = true) {
  RowConverter converter;
  const Status status = RowConverter::Create(from, to, slots, &converter);
  EXPECT_TRUE(status.ok()) << status.message;
  return converter;
}

/// Converts `row`. The destination has exactly the row's size and old contents.
std::string Convert(const RowConverter& converter, const RowLayout& to, const std::string& row) {
  std::string made(to.stride(), '#');
  converter.Convert(row.data(), made.data());
  return made;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
T At(const std::string& row, size_t offset) {
  T value;
  std::memcpy(&value, row.data() + offset, sizeof(value));
  return value;
}

TEST(RowConverter, goes_between_floating_dtypes_and_int8_with_a_scale_alone) {
  for (int i = 1; i <= 9; ++i) {
    const auto from = static_cast<DType>(i);
    for (int j = 1; j <= 9; ++j) {
      const auto to = static_cast<DType>(j);
      const bool fits = from == to || (IsFloating(from) && IsFloating(to));
      const Status status = Create(Plain(from), Plain(to));
      EXPECT_EQ(status.code, fits ? Code::kOk : Code::kInvalidArgument)
          << NameOf(from) << " to " << NameOf(to);
      if (fits) continue;
      const std::string received =
          "Received: " + std::string(NameOf(from)) + " to become " + std::string(NameOf(to));
      EXPECT_NE(status.message.find(received), std::string::npos) << status.message;
    }
    EXPECT_EQ(Create(Plain(from), Scaled()).ok(), IsFloating(from)) << NameOf(from);
    EXPECT_EQ(Create(Scaled(), Plain(from)).ok(), IsFloating(from)) << NameOf(from);
  }
  EXPECT_TRUE(Create(Scaled(), Scaled()).ok());
}

TEST(RowConverter, refuses_rows_of_other_keys_or_dims) {
  EXPECT_EQ(Create(Plain(DType::kHalf, 3), Plain(DType::kHalf, 4)).code, Code::kInvalidArgument);
  const Status status = Create(RowLayout(KeyType::kString, DType::kHalf, 3), Plain(DType::kHalf));
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.message.find("string keys and dim=3 for int64 keys"), std::string::npos)
      << status.message;
}

TEST(RowConverter, rounds_values_to_nearest_even) {
  const RowLayout from = Plain(DType::kFloat64), to = Plain(DType::kBFloat16);
  const std::string row = BytesOf<double>({1.0 + 1.0 / 256, 1.0 + 3.0 / 256, -2.5});
  const std::string made = Convert(Converter(from, to), to, row);
  EXPECT_EQ(made, BytesOf<uint16_t>({0x3f80, 0x3f82, 0xc020}));
}

TEST(RowConverter, is_the_identity_exactly_where_the_bytes_are_the_same) {
  RowLayout with = Plain(DType::kFloat32);
  with.Append("adam", {{"m", DType::kFloat32, 3, 0.5}, {"v", DType::kFloat32, 3, 0}});
  RowLayout turned = Plain(DType::kFloat32);
  turned.Append("adam", {{"v", DType::kFloat32, 3, 0}, {"m", DType::kFloat32, 3, 0.5}});
  EXPECT_TRUE(Converter(with, with).identity());
  EXPECT_FALSE(Converter(with, with, /*slots=*/false).identity());
  EXPECT_FALSE(Converter(with, turned).identity());
  EXPECT_FALSE(Converter(with, Plain(DType::kFloat32)).identity());
  EXPECT_FALSE(Converter(Plain(DType::kFloat32), with).identity());
  EXPECT_FALSE(Converter(Plain(DType::kHalf), Plain(DType::kBFloat16)).identity());
  EXPECT_TRUE(Converter(Scaled(), Scaled()).identity());
}

TEST(RowConverter, slots_go_over_by_owner_name_and_width_and_are_converted) {
  RowLayout from = Plain(DType::kFloat32);
  from.Append("a", {{"same", DType::kFloat32, 3, 9},
                    {"wider", DType::kFloat32, 1, 9},
                    {"type", DType::kFloat32, 1, 9},
                    {"whole", DType::kFloat32, 1, 9}});
  from.Append("b", {{"owner", DType::kFloat32, 1, 9}});
  RowLayout to = Plain(DType::kFloat64);
  to.Append("a", {{"type", DType::kFloat64, 1, 0.25},
                  {"owner", DType::kFloat32, 1, 0.5},
                  {"wider", DType::kFloat32, 3, 0.75},
                  {"same", DType::kFloat32, 3, 0.125},
                  {"whole", DType::kInt64, 1, 0}});
  const std::string row = BytesOf<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  for (const bool slots : {true, false}) {
    const std::string made = Convert(Converter(from, to, slots), to, row);
    EXPECT_EQ(made.substr(0, 24), BytesOf<double>({1, 2, 3}));
    EXPECT_EQ(At<double>(made, to.FindSlot("a", "type")->offset), slots ? 8 : 0.25);
    EXPECT_EQ(At<int64_t>(made, to.FindSlot("a", "whole")->offset), 0);
    EXPECT_EQ(At<float>(made, to.FindSlot("a", "owner")->offset), 0.5F);
    const size_t wider = to.FindSlot("a", "wider")->offset;
    EXPECT_EQ(made.substr(wider, 12), BytesOf<float>({0.75F, 0.75F, 0.75F}));
    const size_t same = to.FindSlot("a", "same")->offset;
    EXPECT_EQ(made.substr(same, 12),
              slots ? BytesOf<float>({4, 5, 6}) : BytesOf<float>({0.125F, 0.125F, 0.125F}));
  }
}

TEST(RowConverter, int8_has_the_greatest_magnitude_at_its_end_and_rounds_to_even) {
  const RowLayout from = Plain(DType::kFloat32, 6), to = Scaled(6);
  const RowConverter converter = Converter(from, to);
  const std::string made =
      Convert(converter, to, BytesOf<float>({-254, 1, 3, -5, 0, 127}));  // the scale is 2
  EXPECT_EQ(made.substr(0, 6), BytesOf<int8_t>({-127, 0, 2, -2, 0, 64}));
  const size_t scale = to.FindSlot(kScaleOwner, kScaleName)->offset;
  EXPECT_EQ(At<float>(made, scale), 2.0F);
  const RowConverter back = Converter(to, from);
  EXPECT_EQ(Convert(back, from, made), BytesOf<float>({-254, 0, 4, -4, 0, 128}));
}

TEST(RowConverter, int8_takes_zeros_infinities_nan_and_the_smallest_numbers) {
  const RowLayout from = Plain(DType::kFloat32), to = Scaled();
  const RowConverter converter = Converter(from, to);
  const size_t scale = to.FindSlot(kScaleOwner, kScaleName)->offset;
  const auto stored = [&](const std::vector<float>& values) {
    return Convert(converter, to, BytesOf(values));
  };
  EXPECT_EQ(stored({0, -0.0F, 0}).substr(0, 3), BytesOf<int8_t>({0, 0, 0}));
  EXPECT_GT(At<float>(stored({0, 0, 0}), scale), 0.0F);
  EXPECT_EQ(stored({kInfinity, -kInfinity, 127}).substr(0, 3), BytesOf<int8_t>({127, -127, 127}));
  EXPECT_EQ(At<float>(stored({kInfinity, -kInfinity, 127}), scale), 1.0F);
  EXPECT_EQ(stored({kNaN, 127, kNaN}).substr(0, 3), BytesOf<int8_t>({0, 127, 0}));
  EXPECT_EQ(stored({kNaN, kInfinity, 0}).substr(0, 3), BytesOf<int8_t>({0, 127, 0}));
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  const std::string small = stored({kSmallest, 0, -kSmallest});
  EXPECT_EQ(Convert(Converter(to, from), from, small), BytesOf<float>({kSmallest, 0, -kSmallest}));
  constexpr float kGreatest = std::numeric_limits<float>::max();
  EXPECT_EQ(stored({kGreatest, -kGreatest, 0}).substr(0, 3), BytesOf<int8_t>({127, -127, 0}));
}

TEST(RowConverter, a_scale_goes_with_its_values_also_without_slots) {
  RowLayout from = Scaled();
  from.Append("adam", {{"m", DType::kFloat32, 1, 0.5}});
  const RowLayout to = Scaled();
  std::string row(from.stride(), '\0');
  const float scale = 0.125F;
  std::memcpy(row.data(), "\x01\x02\xfd", 3);
  std::memcpy(row.data() + from.FindSlot(kScaleOwner, kScaleName)->offset, &scale, sizeof(scale));
  const std::string made = Convert(Converter(from, to, /*slots=*/false), to, row);
  EXPECT_EQ(made.substr(0, 3), row.substr(0, 3));
  EXPECT_EQ(At<float>(made, to.FindSlot(kScaleOwner, kScaleName)->offset), scale);
}

TEST(RowConverter, measures_what_it_loses) {
  const RowLayout from = Plain(DType::kFloat32, 4), to = Scaled(4);
  const RowConverter converter = Converter(from, to);
  ConversionError error;
  EXPECT_EQ(error.mean(), 0.0);
  // as int8 with the scale 254 / 127 = 2, these values become 254, 0, 2, 0
  const std::string row = BytesOf<float>({254, 1, 2.5F, kNaN});
  const std::string made = Convert(converter, to, row);
  converter.Measure(row.data(), made.data(), &error);
  EXPECT_EQ(error.max, 1.0);
  EXPECT_EQ(error.sum, 1.5);
  EXPECT_EQ(error.elements, 4U);
  ConversionError all;
  all.Add(error);
  all.Add({0.5, 0.5, 4});
  EXPECT_EQ(all.max, 1.0);
  EXPECT_EQ(all.mean(), 0.25);
}

}  // namespace
}  // namespace de::engine
