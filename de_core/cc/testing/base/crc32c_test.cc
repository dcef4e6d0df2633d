#include "de_core/cc/engine/base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace de::engine {
namespace {

constexpr auto kImplementations = {Crc32cExtend, Crc32cExtendPortable};

// Values of RFC 3720, appendix B.4, and the CRC catalogue's check value.
TEST(Crc32c, gives_the_published_values) {
  std::vector<unsigned char> ascending(32);
  std::iota(ascending.begin(), ascending.end(), static_cast<unsigned char>(0));
  const std::vector<unsigned char> descending(ascending.rbegin(), ascending.rend());
  EXPECT_EQ(Crc32c("", 0), 0U);
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43U);
  EXPECT_EQ(Crc32c(ascending.data(), 32), 0x46dd794eU);
  EXPECT_EQ(Crc32c(descending.data(), 32), 0x113fdb5cU);
}

TEST(Crc32c, every_implementation_agrees_at_every_length_and_alignment) {
  std::mt19937_64 random(1);
  std::string bytes(4096, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; size < 200; ++size) {
      uint32_t bitwise = ~0U;
      for (size_t i = begin; i < begin + size; ++i) {
        bitwise ^= static_cast<unsigned char>(bytes[i]);
        for (int bit = 0; bit < 8; ++bit)
          bitwise = (bitwise >> 1) ^ (bitwise & 1 ? 0x82f63b78U : 0);
      }
      for (const auto extend : kImplementations) {
        EXPECT_EQ(extend(0, bytes.data() + begin, size), ~bitwise);
      }
    }
  }
}

TEST(Crc32c, long_blocks_agree) {
  std::mt19937_64 random(2);
  std::string bytes(60000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (const size_t size :
       {767, 768, 769, 788, 1536, 12287, 12288, 12289, 24575, 24576, 24583, 36864, 59000}) {
    for (const size_t begin : {0, 1, 5}) {
      EXPECT_EQ(Crc32cExtend(7, bytes.data() + begin, size),
                Crc32cExtendPortable(7, bytes.data() + begin, size))
          << size;
    }
  }
}

TEST(Crc32c, pieces_extend_to_the_whole) {
  std::string bytes(30000, '\0');
  std::iota(bytes.begin(), bytes.end(), static_cast<char>(0));
  const uint32_t whole = Crc32c(bytes.data(), bytes.size());
  for (const auto extend : kImplementations) {
    for (size_t cut = 0; cut <= bytes.size(); cut += 97) {
      const uint32_t first = extend(0, bytes.data(), cut);
      EXPECT_EQ(extend(first, bytes.data() + cut, bytes.size() - cut), whole);
    }
  }
}

}  // namespace
}  // namespace de::engine
