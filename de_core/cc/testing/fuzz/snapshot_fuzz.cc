// Fuzz target: for any bytes of a snapshot, opening, verifying and looking up must return a Status
// and access only these bytes. Each input is tried as is, and with corrected checksums, so that the
// later checks are reached too. The input chooses one of the processor's SIMD levels.
//
// With libFuzzer: clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -DDE_LIBFUZZER -I.
// this file and crc32c, snapshot_header, snapshot_format, snapshot_writer, snapshot_reader,
// snapshot_chain, row_converter, value_reader, oov_policy, frozen_table, frozen_find, frozen_chain,
// initializer, simd_level (.cc) of de_core/cc/engine.
// Without -DDE_LIBFUZZER and -fsanitize=fuzzer, the program runs the given files, or with
// `--mutate SECONDS [SEED]` mutates its own snapshots. `--corpus DIRECTORY` writes these.
#include <cstdlib>
#include <numeric>

#include "de_core/cc/engine/base/crc32c.h"
#include "de_core/cc/engine/serving/frozen_chain.h"
#include "de_core/cc/engine/serving/frozen_table.h"
#include "de_core/cc/testing/forced_level.h"
#include "de_core/cc/testing/fuzz/fuzz_main.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using testing::AlignedBytes;

/// Reads every byte, so that a sanitizer checks it.
void Touch(const void* data, size_t size) {
  volatile unsigned char sum = 0;
  for (size_t i = 0; i < size; ++i) {
    sum = static_cast<unsigned char>(sum + static_cast<const unsigned char*>(data)[i]);
  }
}

/// Memory for the values of a lookup in a FrozenTable or FrozenChain.
struct FoundValues {
  template <typename Table>
  FoundValues(const Table& table, size_t keys)
      : texts(table.value_dtype() == DType::kString ? keys * table.dim() : 0),
        words(texts.empty() ? keys * table.value_bytes() / 8 + 1 : 0) {}
  FrozenOut out() {
    return texts.empty() ? FrozenOut{words.data()} : FrozenOut{nullptr, texts.data()};
  }
  void TouchTexts() const {
    for (const std::string_view text : texts) Touch(text.data(), text.size());
  }
  std::vector<std::string_view> texts;
  std::vector<uint64_t> words;
};

void LookUp(const FrozenTable& table, const std::vector<int64_t>& ints,
            const std::vector<std::string_view>& strings) {
  const bool string_keys = table.key_type() == KeyType::kString;
  const Keys keys = string_keys ? Keys{nullptr, strings.data(), strings.size()}
                                : Keys{ints.data(), nullptr, ints.size()};
  std::vector<char> found(keys.size);
  bool* const flags = reinterpret_cast<bool*>(found.data());
  std::vector<uint32_t> positions(keys.size);
  std::iota(positions.begin(), positions.end(), 0U);
  size_t count = keys.size;
  FoundValues values(table, keys.size);
  if (table.Override(keys, positions.data(), &count, values.out(), flags).ok()) values.TouchTexts();
  if (table.Find(keys, values.out(), flags).ok()) values.TouchTexts();
  (void)table.Find(keys, {}, flags);
}

/// A valid base and a valid delta to it.
struct SoundPair {
  SoundPair(const RowLayout& layout, const SnapshotHeader& header)
      : base(testing::SampleTable(layout, 12).Bytes(header, 1)),
        delta(testing::SampleTable(layout, 9).Bytes(testing::SampleDeltaHeader(header), 1)) {}
  AlignedBytes base, delta;
};

SnapshotHeader PlainHeader() {
  SnapshotHeader header = testing::SampleHeader();
  header.initializer = {};
  return header;
}

RowLayout SlotsLayout() {
  RowLayout layout(KeyType::kString, DType::kFloat32, 2);
  layout.Append("adagrad", {{"accumulator", DType::kFloat32, 2, 0.1}});
  return layout;
}

/// Tries the file as a delta on a valid base, and as the base of a valid delta.
void TryChains(const AlignedBytes& file, const std::vector<int64_t>& ints,
               const std::vector<std::string_view>& strings) {
  static const SoundPair pairs[] = {
      {RowLayout(KeyType::kInt64, DType::kFloat32, 2), testing::SampleHeader()},
      {SlotsLayout(), testing::SampleHeader()},
      {RowLayout(KeyType::kString, DType::kString, 2), PlainHeader()},
  };
  for (const SoundPair& pair : pairs) {
    for (const bool on_base : {true, false}) {
      const AlignedBytes& first = on_base ? pair.base : file;
      const AlignedBytes& second = on_base ? file : pair.delta;
      std::unique_ptr<FrozenChain> chain;
      const Status status = testing::OpenChain(
          {{first.data(), first.size()}, {second.data(), second.size()}}, &chain);
      if (!status.ok() && status.message.empty()) std::abort();
      if (!status.ok()) continue;
      const bool string_keys = chain->header().layout.key_type() == KeyType::kString;
      const Keys keys = string_keys ? Keys{nullptr, strings.data(), strings.size()}
                                    : Keys{ints.data(), nullptr, ints.size()};
      std::vector<char> found(keys.size);
      bool* const flags = reinterpret_cast<bool*>(found.data());
      uint64_t rows = 0;
      (void)chain->Size(&rows);
      FoundValues values(*chain, keys.size);
      if (chain->Find(keys, values.out(), flags).ok()) values.TouchTexts();
    }
  }
}

void TryAll(std::string_view bytes) {
  const AlignedBytes exact(bytes);
  std::unique_ptr<FrozenTable> table;
  Status status = testing::OpenFrozen({exact.data(), exact.size()}, &table);
  if (!status.ok() && status.message.empty()) std::abort();
  if (!status.ok()) return;

  std::vector<int64_t> ints = {0, -1, 1, INT64_MIN};
  std::vector<std::string> texts = {"", "absent"};
  SectionBuffer buffer;
  bool intact = true;
  for (size_t i = 0; i < table->reader().sections().size(); ++i) {
    status = table->reader().ReadSection(i, &buffer);
    intact = intact && status.ok();
    // Lookups can fail because of the index, so look up all words in it, valid or not.
    const SectionRecord& section = table->reader().sections()[i];
    const char* lines = exact.data() + section.offset + sizeof(BlockRecord);
    for (uint32_t k = 0; k < section.lines && ints.size() < 4096; ++k) {
      IndexLine line;
      std::memcpy(&line, lines + k * sizeof(line), sizeof(line));
      for (const uint64_t word : line.words) ints.push_back(static_cast<int64_t>(word));
    }
    if (!status.ok()) continue;
    Touch(buffer.section.rows, buffer.section.count * table->header().layout.stride());
    for (const std::string_view key : buffer.keys) texts.emplace_back(key);
    for (const std::string_view value : buffer.values) Touch(value.data(), value.size());
  }
  LookUp(*table, ints, {texts.begin(), texts.end()});
  TryChains(exact, ints, {texts.begin(), texts.end()});
  std::unique_ptr<SnapshotReader> reader;
  status = testing::OpenAndRead({exact.data(), exact.size()}, &reader);
  if (status.ok() != intact) std::abort();
}

std::vector<std::string> Corpus() {
  const SnapshotHeader header = testing::SampleHeader();
  const SnapshotHeader plain = PlainHeader();
  const RowLayout slots = SlotsLayout();
  const SnapshotHeader delta = testing::SampleDeltaHeader(header);
  const SnapshotHeader plain_delta = testing::SampleDeltaHeader(plain);
  return {
      testing::SampleTable(RowLayout(KeyType::kInt64, DType::kFloat32, 2), 30).Bytes(delta, 1),
      testing::SampleTable(slots, 20).Bytes(delta, 1),
      testing::SampleTable(RowLayout(KeyType::kString, DType::kString, 2), 12)
          .Bytes(plain_delta, 0),
      testing::SampleTable(RowLayout(KeyType::kInt64, DType::kFloat32, 3), 20)
          .Bytes(header, 1, DType::kInt8),
      testing::SampleTable(RowLayout(KeyType::kString, DType::kFloat32, 3), 20)
          .Bytes(delta, 1, DType::kBFloat16),
      testing::SampleTable(RowLayout(KeyType::kInt64, DType::kFloat32, 2), 30).Bytes(header, 1),
      testing::SampleTable(slots, 20).Bytes(header, 2),
      testing::SampleTable(RowLayout(KeyType::kString, DType::kString, 2), 10).Bytes(plain, 0),
      testing::SampleTable(RowLayout(KeyType::kInt64, DType::kInt8, 3), 0).Bytes(plain, 0),
  };
}

}  // namespace
}  // namespace de::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  const uint32_t drawn = de::engine::Crc32c(data, size);
  const de::engine::ForcedLevel level(static_cast<de::engine::SimdLevel>(drawn % 3));
  de::engine::TryAll(bytes);
  de::engine::testing::Reseal(&bytes);
  de::engine::TryAll(bytes);
  return 0;
}

#if !defined(DE_LIBFUZZER)
namespace {

/// Makes up to four changes: a bit, a byte, a 32-bit or 64-bit word of an interesting value, a cut.
std::string Mutate(std::string bytes, std::mt19937_64* random) {
  const auto below = [&](uint64_t n) { return static_cast<size_t>((*random)() % n); };
  for (size_t changes = 1 + below(4); changes > 0 && bytes.size() > 8; --changes) {
    const size_t at = below(bytes.size() - 7);
    const uint64_t telling[] = {0,
                                1,
                                ~uint64_t{0},
                                uint64_t{1} << 31,
                                uint64_t{1} << 63,
                                bytes.size(),
                                bytes.size() - 1,
                                (*random)()};
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>((*random)());
        break;
      case 2:
        std::memcpy(&bytes[at / 4 * 4], &telling[below(8)], 4);
        break;
      case 3:
        std::memcpy(&bytes[at / 8 * 8], &telling[below(8)], 8);
        break;
      case 4:
        std::memcpy(&bytes[at], &bytes[below(bytes.size() - 7)], 8);
        break;
      default:
        if (below(20) == 0) bytes.resize(at);
        break;
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> corpus = de::engine::Corpus();
  if (argc > 2 && std::string(argv[1]) == "--corpus") {
    for (size_t i = 0; i < corpus.size(); ++i) {
      std::ofstream(std::string(argv[2]) + "/" + std::to_string(i), std::ios::binary) << corpus[i];
    }
    return 0;
  }
  return de::engine::testing::FuzzMain(argc, argv, [&](std::mt19937_64* random, size_t run) {
    return Mutate(corpus[run % corpus.size()], random);
  });
}
#endif
